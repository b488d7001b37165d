#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "controller/common/data_folder.h"
#include "controller/common/hearing.h"
#include "controller/ranks/rank_streams.h"
#include "controller/service/draining.h"
#include "controller/service/parts.h"
#include "muster/v1/admin_service.pb.h"

namespace service {

/// The facts about musterd itself that `muster status` and `muster doctor` show. Never waits for a disk that stands
/// still. Thread-safe.
class StatusPage {
 public:
  struct Watched {
    const Draining& draining;
    ranks::MetricsWriter& metrics;
    common::Hearing& hearing;
    common::DiskProbe& probe;
    const common::Reading& reading;
    const ranks::Pace& pace;
    const ranks::RankStreams& streams;
  };
  StatusPage(const Parts& parts, Watched watched)
      : parts_(parts),
        watched_(watched),
        started_at_(parts.clock.wall()),
        schema_version_(parts.store.schema_version()) {}

  void set_dashboard(const std::string& url);
  /// Counts jobs and events and looks at the disk's free space, for get() to show while the disk stands still.
  void look_at_store();
  muster::v1::StatusResponse get();

 private:
  struct Counted {
    std::int64_t jobs = 0, running = 0, events = 0, free_bytes = 0;
    std::vector<std::string> problems = {};
  };

  const Parts& parts_;
  const Watched watched_;
  const core::Time started_at_;
  const std::int64_t schema_version_;
  std::mutex mutex_;
  Counted counted_;
  std::string dashboard_;
};

}  // namespace service
