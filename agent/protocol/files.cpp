#include "agent/protocol/files.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>

#include "agent/protocol/launch.h"

namespace agent::protocol {
namespace {

/// Words of Gloo, NCCL, c10d's store, sockets of the system, process pools, torchelastic, Horovod and JAX about a rank
/// that has gone, and of programs that a signal has asked to leave. In lower case, for programs write them in any.
constexpr std::string_view kParts[]{
    "the peer has closed the connection",  // the engine of muster-worker
    "is gone: process ",                   // its watcher, of another rank
    "connection closed by peer",
    "connection closed by remote peer",
    "connection reset by peer",
    "connection refused",
    "connectionreseterror",
    "connectionrefusederror",
    "connectionabortederror",
    "connection was likely closed",
    "broken pipe",
    "brokenpipeerror",
    "brokenprocesspool",
    "socket closed",
    "socket timeout",
    "application timeout caused pair closure",
    "timed out waiting",
    "waiting for clients",
    "failed to pass monitoredbarrier",
    "remote process exited",
    "ncclremoteerror",
    "nccl communicator was aborted",
    "caught collective operation timeout",
    "process group watchdog thread terminated",
    "store->get(",
    "failed to recv",
    "distbackenderror",
    "distnetworkerror",
    "diststoreerror",
    "got signal: 15",
    "killed by signal: terminated",  // of a data loader's worker, by the signal that its rank got
    "keyboardinterrupt",             // of a handler that raises
    "horovodinternalerror",
    "jax distributed service detected fatal errors",
};

bool is_equal(char any_case, char lower) {
  return std::tolower(static_cast<unsigned char>(any_case)) == lower;
}

}  // namespace

bool is_of_a_survivor(std::string_view error) {
  return std::ranges::any_of(kParts, [&](auto part) { return !std::ranges::search(error, part, is_equal).empty(); });
}

namespace {

const char* name_of(RankStatus::State state) {
  switch (state) {
    case RankStatus::State::kRunning:
      return "running";
    case RankStatus::State::kExited:
      return "exited";
    case RankStatus::State::kStepLost:
      return "step_lost";
  }
  return "running";
}

RankStatus::State state_of(std::string_view name) {
  if (name == "exited") return RankStatus::State::kExited;
  if (name == "step_lost") return RankStatus::State::kStepLost;
  return RankStatus::State::kRunning;
}

}  // namespace

std::filesystem::path rank_status_folder(const std::filesystem::path& attempt_folder) {
  return attempt_folder / "ranks";
}

std::filesystem::path rank_status_file(const std::filesystem::path& attempt_folder, std::uint32_t rank) {
  return rank_status_folder(attempt_folder) / ("rank-" + std::to_string(rank) + ".json");
}

std::string to_text(const RankStatus& status) {
  const nlohmann::ordered_json json = {{"format", kFormat},
                                       {"state", name_of(status.state)},
                                       {"node", status.node},
                                       {"pid", status.pid},
                                       {"exit_code", status.exit.code},
                                       {"signal", status.exit.signal},
                                       {"ended_at_ms", status.ended_at_ms},
                                       {"out_of_memory", status.out_of_memory},
                                       {"signals_seen", status.signals_seen},
                                       {"trouble", status.trouble},
                                       {"error", status.error}};
  return json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
}

std::optional<RankStatus> parse_rank_status(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  try {
    if (!json.is_object() || json.value("format", 0) != kFormat) return std::nullopt;
    RankStatus status;
    status.state = state_of(json.value("state", ""));
    status.node = json.value("node", "");
    status.pid = json.value("pid", std::int64_t{0});
    status.exit = {json.value("exit_code", 0), json.value("signal", 0)};
    status.ended_at_ms = json.value("ended_at_ms", std::int64_t{0});
    status.out_of_memory = json.value("out_of_memory", false);
    status.signals_seen = json.value("signals_seen", std::vector<int>{});
    status.trouble = json.value("trouble", "");
    status.error = json.value("error", "");
    return status;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace agent::protocol
