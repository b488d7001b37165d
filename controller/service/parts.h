#pragma once

#include <cstdint>
#include <string>

#include "actions/action_runner.h"
#include "base/data_folder.h"
#include "jobs/event_log.h"
#include "jobs/specs.h"
#include "partitions/partitions.h"
#include "ranks/live_ranks.h"
#include "ranks/metrics.h"
#include "schema/utf8.h"
#include "service/controller_impl.h"

namespace service {

/// What the requests of people have in common.

/// The parts of a running controller that requests need. Each outlives whoever holds this.
struct Parts {
  store::Store& store;
  executors::Executor& executor;
  base::Clock& clock;
  jobs::EventLog& event_log;
  jobs::SpecCache& specs;
  ranks::NewestMetrics& newest;
  ranks::LiveRanks& live_ranks;
  partitions::Partitions& partitions;
  admission::Admission& admission;
  actions::ActionRunner& runner;
  const base::DataFolder& data;
  const std::string& secret;  // of the store
  const ControllerOptions& options;
};

inline constexpr std::uint32_t kListMost = 1000;

/// At most 64 bytes, valid UTF-8; "unknown" if the caller named no user.
inline std::string user_or_unknown(const std::string& user) {
  constexpr std::size_t kMostUser = 64;
  // The cut may leave half a character, which protobuf does not send.
  return user.empty() ? "unknown" : schema::valid_utf8(user.substr(0, kMostUser));
}

}  // namespace service
