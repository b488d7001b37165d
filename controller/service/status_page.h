#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "base/data_folder.h"
#include "base/disk_probe.h"
#include "base/reading.h"
#include "jobs/event_log.h"
#include "muster/v1/admin_service.pb.h"
#include "partitions/partitions.h"
#include "ranks/metrics_writer.h"
#include "ranks/rank_streams.h"

namespace service {

/// What `muster status` and `muster doctor` show of musterd itself. Never waits for a disk that stands still.
/// Thread-safe.
class StatusPage {
 public:
  struct Parts {
    store::Store& store;
    executors::Executor& executor;
    jobs::EventLog& event_log;
    ranks::MetricsWriter& metrics;
    partitions::Partitions& partitions;
    base::Hearing& hearing;
    base::DiskProbe& probe;
    const base::Reading& reading;
    const ranks::Pace& pace;
    const ranks::RankStreams& streams;
    const base::DataFolder& data;
    core::Time started_at{};
    std::string version;
    /// What is wrong with musterd's own files, each with its remedy.
    std::function<std::vector<std::string>()> problems;
  };
  explicit StatusPage(Parts parts) : parts_(std::move(parts)), schema_version_(parts_.store.schema_version()) {}

  void set_dashboard(const std::string& url);
  /// Counts jobs and events and looks at the disk's free space, for get() to show while the disk stands still.
  void look_at_store();
  muster::v1::StatusResponse get();

 private:
  struct Counted {
    std::int64_t jobs = 0, running = 0, events = 0, free_bytes = 0;
    std::vector<std::string> problems = {};
  };

  Parts parts_;
  const std::int64_t schema_version_;
  std::mutex mutex_;
  Counted counted_;
  std::string dashboard_;
};

}  // namespace service
