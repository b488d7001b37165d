#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "agent/protocol/files.h"
#include "controller/common/clock.h"
#include "controller/common/hearing.h"
#include "controller/common/loop.h"
#include "controller/core/job.h"

namespace common {

/// Makes musterd's data folder if there is none, for its user alone. Throws std::system_error that names the path.
void make_data_folder(const std::filesystem::path& folder);

/// Where everything lies under musterd's data folder. Nothing is created here.
class DataFolder {
 public:
  explicit DataFolder(std::filesystem::path root) : root_(std::move(root)) {}
  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path database() const { return root_ / "muster.db"; }
  /// Held (flock) by the musterd of this folder, which writes its pid into it.
  std::filesystem::path lock() const { return root_ / "muster.db.lock"; }
  std::filesystem::path token() const { return root_ / "token"; }
  /// A running musterd's word about itself, see common::ReadyFile.
  std::filesystem::path ready_file() const { return root_ / "musterd.json"; }
  std::filesystem::path cache() const { return root_ / "cache"; }
  std::filesystem::path disk_probe() const { return root_ / "disk-probe"; }
  std::filesystem::path job(core::JobId id) const { return root_ / "jobs" / std::to_string(id); }
  std::filesystem::path attempt(const core::AttemptKey& key) const {
    return job(key.job) / (std::string(agent::protocol::kAttemptStart) + std::to_string(key.number));
  }
  std::filesystem::path run_file(const core::AttemptKey& key) const { return attempt(key) / "run.json"; }
  std::filesystem::path logs(const core::AttemptKey& key) const { return attempt(key) / agent::protocol::kLogsFolder; }
  std::filesystem::path log(const core::AttemptKey& key, core::RankNumber rank) const {
    return logs(key) /
           (std::string(agent::protocol::kRankStart) + std::to_string(rank) + std::string(agent::protocol::kLogEnd));
  }
  /// The list of what a program's checkpoint folder held before the attempt began, see jobs::FolderContents.
  std::filesystem::path checkpoints_before(const core::AttemptKey& key) const {
    return attempt(key) / "checkpoints-before.json";
  }
  /// Rank 0's address, so that ranks that ask after a restart of the controller still learn it.
  std::filesystem::path rendezvous(const core::AttemptKey& key) const { return attempt(key) / "rendezvous"; }
  /// Heartbeats that a rank could not send while the controller was away, see agent/rank/grpc/grpc_unsent_file.h.
  std::filesystem::path unsent(const core::AttemptKey& key, core::RankNumber rank) const {
    return attempt(key) / "unsent" / ("rank-" + std::to_string(rank));
  }
  /// The job whose folder this path leads into, by whatever links; nullopt: none. A path that does not answer soon is
  /// taken as it is written.
  std::optional<core::JobId> job_of(const std::filesystem::path& path) const;
  std::filesystem::path checkpoints(core::JobId id) const { return job(id) / "checkpoints"; }
  /// The highest number that a job's folder has, or a job that waits in an array; 0: there is none. After a restored
  /// backup it may be higher than any the store knows, and what lies there is another job's.
  core::JobId newest_job_folder() const;
  /// 12 of "set-12.3", the folder of an array: its first job. nullopt: the folder is no array's.
  static std::optional<core::JobId> first_job_of_set(std::string_view name);
  static constexpr std::string_view kSetStart = "set-";
  /// Why others can look into it, with the remedy; empty: they can't.
  std::string open_to_others() const;

 private:
  std::filesystem::path root_;
};

/// The room that a folder and all below it take on the disk. Links are not followed. 0: it is not there.
std::int64_t bytes_below(const std::filesystem::path& folder);

/// Writes a byte into a file of the data folder when asked, so that Hearing knows of a disk that stands still though
/// nothing else is written. Thread-safe; one thread of its own.
class DiskProbe {
 public:
  /// A question sooner than this after the last write, of whatever kind, is not asked: that write was the answer.
  static constexpr core::Millis kAgainAfter{500};

  /// Without threads it does nothing.
  DiskProbe(Hearing& hearing, Clock& clock, std::filesystem::path file, bool threads);

  /// Returns at once.
  void ask();
  /// Asks as ask() does, and waits until the write is done, at most `patience`.
  void ask_and_wait(core::Millis patience);

 private:
  std::optional<core::Millis> write();

  Hearing& hearing_;
  Clock& clock_;
  const std::filesystem::path file_;
  std::mutex mutex_;
  std::condition_variable done_;
  bool wanted_ = false;  // until the write that was asked for is done
  Loop loop_;
};

}  // namespace common
