#pragma once

#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "controller/common/loop.h"
#include "controller/in_slurm/own_job.h"

namespace in_slurm {

/// Which Slurm job this musterd runs in, and on whose data folder.
struct OwnJob {
  std::filesystem::path data_folder;
  slurm::JobId id;
  std::string user;  // whose jobs Slurm is asked for
};

/// Keeps one successor of this musterd's Slurm job queued, see [Note: musterd inside Slurm jobs]. Thread-safe; one
/// thread of its own, which waits for Slurm's commands and for the disk.
class Succession {
 public:
  /// Between two looks at the claim, a small file.
  static constexpr core::Millis kLookEvery{5'000};
  /// Slurm's list is asked for at every so many looks.
  static constexpr int kLooksAListing = 12;
  /// A successor does not start earlier than this after its submission, so that a musterd that ends right after its
  /// start costs the cluster six jobs a minute at the most.
  static constexpr std::chrono::seconds kNotBefore{10};
  /// Is called once, with the reason, when this musterd must go: its job is over, or another one has the folder.
  using Leave = std::function<void(const std::string& why)>;

  /// `slurm` must outlive this. Without threads a test calls step().
  Succession(slurm::Scheduler& slurm, OwnJob own, Leave leave, bool threads = true);

  /// From here on there is a successor, and the claim of another musterd is a reason to leave. Called again, it changes
  /// nothing.
  void start();
  /// Sees once more that there is a successor, for a musterd that ends before it is ready. Waits for Slurm.
  void queue_and_stop();
  /// Why there is no successor, with the remedy; empty: there is one, or nothing is known yet.
  std::string problem() const;
  std::optional<core::Millis> step();

 private:
  /// Why this musterd must leave; empty: it need not.
  std::string look_at_slurm();
  /// Queues a successor where there is none. Returns the text for problem().
  std::string keep_one(const Standing& standing);
  void set_problem(std::string problem);

  slurm::Scheduler& slurm_;
  const OwnJob own_;
  const Leave leave_;
  mutable std::mutex mutex_;
  std::string problem_;
  bool has_started_ = false;
  int looks_until_listing_ = 0;
  common::Loop loop_;
};

/// Claims the data folder for this process, see [Note: musterd inside Slurm jobs]. Throws std::system_error that names
/// the file.
void claim(const OwnJob& own);
/// How long a musterd that has claimed the folder waits before it opens the store; 0: no other musterd can be there
/// that the folder's lock does not show.
core::Millis wait_after_claim(const std::filesystem::path& data_folder);

/// The host by which other machines reach this node: the address that Slurm has for it, since names of nodes need not
/// resolve elsewhere. Empty: Slurm does not say.
std::string address_of_node(slurm::Scheduler& slurm, const std::string& node);

}  // namespace in_slurm
