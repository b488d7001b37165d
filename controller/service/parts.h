#pragma once

#include <cstdint>
#include <string>

#include "base/words.h"
#include "controller/actions/action_runner.h"
#include "controller/common/data_folder.h"
#include "controller/jobs/event_log.h"
#include "controller/jobs/specs.h"
#include "controller/partitions/partitions.h"
#include "controller/ranks/live_ranks.h"
#include "controller/ranks/rank_metrics.h"
#include "controller/service/controller_impl.h"

namespace service {

/// The parts and helpers that the requests of people have in common.

/// The parts of a running controller that requests need. Each outlives whoever holds this.
struct Parts {
  store::Store& store;
  executors::Executor& executor;
  common::Clock& clock;
  jobs::EventLog& event_log;
  jobs::SpecCache& specs;
  ranks::NewestMetrics& newest;
  ranks::LiveRanks& live_ranks;
  partitions::Partitions& partitions;
  admission::Admission& admission;
  actions::ActionRunner& runner;
  const common::DataFolder& data;
  const std::string& secret;  // of the store
  const ControllerOptions& options;
};

inline constexpr std::uint32_t kListMost = 1000;

/// At most 64 bytes, valid UTF-8; "unknown" if the caller named no user.
inline std::string user_or_unknown(const std::string& user) {
  constexpr std::size_t kMostUser = 64;
  // The cut may leave half a character, which protobuf does not send.
  return user.empty() ? "unknown" : base::valid_utf8(user.substr(0, kMostUser));
}

}  // namespace service
