#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "controller/common/data_folder.h"
#include "controller/common/loop.h"
#include "controller/jobs/event_log.h"

namespace jobs {

/// Deletes what removed jobs leave behind. A removal is an event (core::JobRemoved), and core::RemoveFiles is in the
/// outbox until this has deleted the job's metrics, its scheduler's logs and its folder. So whatever is recorded as
/// removed is gone in the end: a crash, a full disk or a folder that takes no writes only delay it, and doing it twice
/// does no harm.
///
/// It waits while another action of the job is in the outbox: a scheduler may still be told to end the attempt whose
/// files these are. It has a thread of its own, because deleting terabytes takes minutes: nothing else waits for it.
/// Without threads, poll() does it all.
class JobRemover {
 public:
  /// Rows of metrics deleted in one transaction, so that other writes get their turn in between.
  static constexpr std::uint32_t kMetricsAtOnce = 5000;

  struct Parts {
    store::Store& store;
    EventLog& event_log;
    const common::DataFolder& data;
    /// The file that a scheduler wrote for the attempt in that folder; may be empty.
    std::function<std::filesystem::path(const std::filesystem::path& attempt_folder)> scheduler_log;
  };
  JobRemover(Parts parts, bool threads);

  void start() { loop_.start(); }
  /// The outbox has something new.
  void wake() { loop_.wake(); }
  /// Deletes what is due, in this thread. False: something is left for later.
  bool poll();
  void stop_taking() { loop_.stop(); }
  void close() { loop_.close(); }

 private:
  /// False: it can't be done now.
  bool remove(core::JobId id);
  void remove_scheduler_logs(const core::Job& job);
  void remove_arrays(const std::string& sweep);

  Parts parts_;
  std::map<core::JobId, std::string> told_;  // why a removal was put off, told once
  common::Loop loop_;
};

}  // namespace jobs
