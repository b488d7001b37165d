#include "agent/rank/slurm_meeting.h"

#include <netdb.h>

#include <charconv>
#include <string_view>

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

}  // namespace agent::rank
