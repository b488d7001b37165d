#include "agent/rank/environment.h"

#include <netdb.h>

#include <charconv>
#include <cstdlib>
#include <stdexcept>

#include "spec/variables.h"

namespace agent::rank {
namespace {

constexpr std::uint64_t kFirstPort = 10'000;
constexpr std::uint64_t kPorts = 20'000;
/// Steps of one job are given ports far apart.
constexpr std::uint64_t kStride = 31;

std::string text(const GetVariable& get, const char* name) {
  return get(name).value_or("");
}

std::uint64_t number(const GetVariable& get, const char* name) {
  const auto digits = text(get, name);
  std::uint64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

std::string first_of(const GetVariable& get, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (auto value = text(get, name); !value.empty()) return value;
  }
  return {};
}

std::string host_of_rank_0(const GetVariable& get, const Resolves& can_resolve) {
  if (first_of(get, {"SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES"}) == "1") return "127.0.0.1";
  const auto first = first_host(first_of(get, {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}));
  if (!first.empty() && can_resolve(first)) return first;
  return text(get, "SLURM_LAUNCH_NODE_IPADDR");
}

}  // namespace

bool resolves(const std::string& host) {
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, nullptr, &found) != 0) return false;
  ::freeaddrinfo(found);
  return true;
}

std::string first_host(std::string_view list) {
  const auto end = list.find_first_of(",[");
  if (end == std::string_view::npos || list[end] == ',') return std::string(list.substr(0, end));
  const auto open = end, close = list.find(']', open);
  if (close == std::string_view::npos) return {};
  const auto number = list.substr(open + 1, list.find_first_of(",-]", open) - open - 1);
  // Several brackets a name: "r[1-2]n[1-2]".
  return std::string(list.substr(0, open)) + std::string(number) + first_host(list.substr(close + 1));
}

std::optional<Endpoint> slurm_meeting_point(const GetVariable& get, const Resolves& can_resolve) {
  if (text(get, "SLURM_PROCID").empty()) return std::nullopt;
  const auto job = number(get, "SLURM_JOB_ID");
  const auto host = host_of_rank_0(get, can_resolve);
  if (job == 0 || host.empty()) return std::nullopt;
  const auto port = kFirstPort + (job * kStride + number(get, "SLURM_STEP_ID")) % kPorts;
  return Endpoint{host, static_cast<std::uint16_t>(port)};
}

namespace {

namespace variable = spec::variable;

[[noreturn]] void refuse(const std::string& message) {
  throw std::invalid_argument("environment: " + message);
}

template <class Number>
Number to_number(std::string_view name, std::string_view text, Number low, Number high) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
    refuse(std::string(name) + "=\"" + std::string(text) + "\" is not a whole number in " + std::to_string(low) + ".." +
           std::to_string(high) + "; fix or unset it");
  }
  return value;
}

constexpr int kMostRanks = 1 << 20;

/// The named variable as a number; nothing when it is unset or empty.
std::optional<int> number(const GetVariable& get, const char* name, int low) {
  const auto text = get(name);
  if (!text || text->empty()) return std::nullopt;
  return to_number(name, *text, low, kMostRanks);
}

int required(const GetVariable& get, const char* name, int low, const char* because) {
  const auto value = number(get, name, low);
  if (!value) refuse(std::string(name) + " is not set but " + because + " is; set it, or unset " + because);
  return *value;
}

/// Tasks on node `node` of Slurm's compressed list, such as "2(x3),1" for nodes with 2, 2, 2 and 1 tasks.
int tasks_on_node(std::string_view list, int node) {
  constexpr const char* kName = "SLURM_STEP_TASKS_PER_NODE";
  int before = 0;
  std::string_view rest = list;
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    std::string_view part = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    int repeat = 1;
    if (const auto open = part.find("(x"); open != std::string_view::npos && part.back() == ')') {
      repeat = to_number(kName, part.substr(open + 2, part.size() - open - 3), 1, kMostRanks);
      part = part.substr(0, open);
    }
    const int tasks = to_number(kName, part, 1, kMostRanks);
    if (node < before + repeat) return tasks;
    before += repeat;
  }
  refuse(std::string(kName) + "=\"" + std::string(list) + "\" says nothing of node " + std::to_string(node) +
         " (SLURM_NODEID); start the ranks with srun");
}

void read_torch_ranks(const GetVariable& get, RankEnvironment& out) {
  out.rank = *number(get, "RANK", 0);
  out.world_size = required(get, "WORLD_SIZE", 1, "RANK");
  // Without local variables all ranks are on one node.
  out.local_world_size = number(get, "LOCAL_WORLD_SIZE", 1).value_or(out.world_size);
  out.local_rank = number(get, "LOCAL_RANK", 0).value_or(out.rank % out.local_world_size);
  out.node_rank = number(get, "NODE_RANK", 0).value_or(out.rank / out.local_world_size);
}

void read_slurm_ranks(const GetVariable& get, RankEnvironment& out) {
  out.rank = *number(get, "SLURM_PROCID", 0);
  const auto step_tasks = number(get, "SLURM_STEP_NUM_TASKS", 1);
  out.world_size = step_tasks ? *step_tasks : required(get, "SLURM_NTASKS", 1, "SLURM_PROCID");
  out.node_rank = number(get, "SLURM_NODEID", 0).value_or(0);
  out.local_rank = required(get, "SLURM_LOCALID", 0, "SLURM_PROCID");
  const auto per_node = get("SLURM_STEP_TASKS_PER_NODE");
  out.local_world_size = per_node && !per_node->empty() ? tasks_on_node(*per_node, out.node_rank) : out.world_size;
}

void check_ranks(const RankEnvironment& e) {
  const auto text = [](int value) { return std::to_string(value); };
  if (e.rank >= e.world_size) {
    refuse("rank " + text(e.rank) + " is not below the world size " + text(e.world_size) +
           "; ranks count from 0, fix RANK or WORLD_SIZE");
  }
  if (e.local_world_size > e.world_size) {
    refuse("local world size " + text(e.local_world_size) + " is above the world size " + text(e.world_size) +
           "; fix LOCAL_WORLD_SIZE or WORLD_SIZE");
  }
  if (e.local_rank >= e.local_world_size) {
    refuse("local rank " + text(e.local_rank) + " is not below the local world size " + text(e.local_world_size) +
           "; fix LOCAL_RANK or LOCAL_WORLD_SIZE");
  }
  if (e.local_world_size == e.world_size && e.node_rank != 0) {
    refuse("node rank " + text(e.node_rank) + " while all " + text(e.world_size) +
           " ranks are on one node; fix NODE_RANK or LOCAL_WORLD_SIZE");
  }
}

void read_master(const GetVariable& get, RankEnvironment& out) {
  const auto address = get(variable::kMasterAddress);
  const auto port = get(variable::kMasterPort);
  if (address && !address->empty() && port && !port->empty()) {
    out.master = Endpoint{*address, to_number<std::uint16_t>(variable::kMasterPort, *port, 1, 65535)};
  } else if (out.world_size > 1 && !out.controller) {
    // RANK and its like were set by somebody else, who has to say where to meet, too.
    if (!number(get, "RANK", 0)) out.master = slurm_meeting_point(get);
    if (out.master) return;
    refuse("MASTER_ADDR and MASTER_PORT must both be set for " + std::to_string(out.world_size) +
           " ranks without a controller; set them to rank 0's address and a free port");
  }
}

}  // namespace

RankEnvironment read_environment(const GetVariable& get) {
  RankEnvironment out;
  if (number(get, "RANK", 0)) {
    read_torch_ranks(get, out);
  } else if (number(get, "SLURM_PROCID", 0)) {
    read_slurm_ranks(get, out);
  } else if (number(get, "WORLD_SIZE", 1).value_or(1) > 1) {
    refuse("WORLD_SIZE is set but RANK is not; set both, or neither for a single process");
  }
  check_ranks(out);

  if (const auto address = get(variable::kController); address && !address->empty()) {
    try {
      out.controller = parse_endpoint(*address);
    } catch (const std::invalid_argument& error) {
      refuse(std::string("MUSTER_CONTROLLER: ") + error.what());
    }
  }
  out.controller_file = get(variable::kControllerFile).value_or("");
  read_master(get, out);
  out.token = get(variable::kRankToken).value_or("");
  out.job_id = get(variable::kJobId).value_or("");
  if (const auto text = get(variable::kAttempt); text && !text->empty()) {
    out.attempt = to_number<std::int64_t>(variable::kAttempt, *text, 0, 1'000'000'000);
  }
  out.attempt_folder = get(variable::kAttemptFolder).value_or("");
  out.run_file = get(variable::kRunFile).value_or("");
  const auto report = get(variable::kReport).value_or("metrics.rank" + std::to_string(out.rank) + ".jsonl");
  out.metrics_file = get(variable::kMetricsFile).value_or(report);
  return out;
}

RankEnvironment read_environment() {
  return read_environment([](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
}

}  // namespace agent::rank
