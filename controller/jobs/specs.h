#pragma once

#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "controller/common/data_folder.h"
#include "controller/core/apply.h"
#include "controller/store/store.h"
#include "muster/v1/job.pb.h"

namespace jobs {

std::string spec_to_text(const muster::v1::JobSpec& spec);
core::RequeuePolicy requeue_policy(const muster::v1::JobSpec& spec);
/// The first event of the job's history.
core::JobSubmitted job_submitted(const muster::v1::JobSpec& spec, const std::string& user);
/// Between the polite signal and SIGKILL: the job's own grace where ranks are to save, a short one where they can't.
core::Millis stop_grace(const muster::v1::JobSpec& spec, bool save);
/// The job's own checkpoint folder, or the one its spec names.
std::filesystem::path checkpoint_folder(const muster::v1::JobSpec& spec, core::JobId job,
                                        const common::DataFolder& data);

/// The object `name` of a stored spec, as text; empty: there is none. Only one member of a spec is an object of that
/// name, and a quote within a text is escaped, so the name is found without reading the rest.
std::string_view object_in(std::string_view spec, const std::string& name);

using SpecPtr = std::shared_ptr<const muster::v1::JobSpec>;

/// Job specs as submitted (they never change): those of open jobs stay in memory once they were asked for, so that a
/// heartbeat never waits for the store; of the others kJobs. Thread-safe.
class SpecCache {
 public:
  static constexpr std::size_t kJobs = 1024;
  explicit SpecCache(store::Store& store) : store_(store) {}

  /// Null if there is no such job. Throws store::Error, or std::runtime_error when the stored text cannot be read.
  SpecPtr get(core::JobId id);
  /// The members of a spec that a list shows. Of a job whose spec is not in memory only these are read, since a sweep
  /// has ten thousand jobs. nullopt: there is no such job. Throws as get().
  struct Headline {
    muster::v1::SweepElement sweep;
    std::int64_t steps = 0;  // of a recipe; 0: not known
  };
  std::optional<Headline> headline(core::JobId id);
  /// True if keep() keeps this spec. The spec of a job that starts later is read then.
  static bool is_kept(const muster::v1::JobSpec& spec) { return !spec.hold(); }
  /// The spec of a job that has just been stored, so that nobody has to read it.
  void keep(core::JobId id, muster::v1::JobSpec spec);
  /// Tells which jobs are open, and forgets those that are removed: their specs may hold secrets.
  void follow(const core::Job& job);

 private:
  void drop_some();
  void put(core::JobId id, SpecPtr spec);
  SpecPtr known(core::JobId id);

  store::Store& store_;
  std::mutex mutex_;
  std::unordered_map<core::JobId, SpecPtr> specs_;
  std::unordered_set<core::JobId> open_;
  std::deque<core::JobId> order_;  // in specs_ and not open, the oldest first
};

}  // namespace jobs
