#include "agent/program/before_start.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdio>
#include <stdexcept>

#include "agent/program/log_link.h"
#include "agent/watch/agent_files.h"
#include "base/numbers.h"
#include "base/patience.h"

namespace agent::program {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

/// How long a file system that does not answer holds up a start.
constexpr milliseconds kFencePatience{2'000};
/// How long it looks at a time whether processes that even SIGKILL does not end at once, such as those that wait for a
/// disk, are there still.
constexpr milliseconds kLookForEarlier{500};

/// A port of this machine that nobody listens on now, for a program that will bind it itself.
std::string free_endpoint(const std::string& address) {
  const base::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in where{};
  where.sin_family = AF_INET;
  ::inet_pton(AF_INET, address.c_str(), &where.sin_addr);
  socklen_t size = sizeof where;
  auto* const named = reinterpret_cast<sockaddr*>(&where);
  if (!socket || ::bind(socket.get(), named, sizeof where) != 0 || ::getsockname(socket.get(), named, &size) != 0) {
    throw std::runtime_error("no free port on " + address);
  }
  return to_string(rank::Endpoint{address, ntohs(where.sin_port)});
}

}  // namespace

rank::Endpoint meet(ControllerLink& link, const rank::RankEnvironment& own) {
  using rank::MeetingPatience;
  std::string mine;
  if (own.rank == 0) mine = free_endpoint(own_address_towards(*own.controller));
  if (own.world_size == 1) return rank::parse_endpoint(mine);
  const auto at = link.meet(mine, {MeetingPatience::kLimit, MeetingPatience::kAwayLimit, Clock::now()});
  if (at.empty()) throw std::runtime_error("the controller did not tell where rank 0 listens");
  return rank::parse_endpoint(at);
}

bool end_earlier(const AgentPlace& agent, const rank::RankEnvironment& own, const Ending& ending,
                 const std::function<bool()>& is_over, const std::function<void(const std::string&)>& say) {
  const auto folder = agent.launch.env.find(spec::variable::kAttemptFolder);
  if (folder == agent.launch.env.end()) return true;
  const process::AttemptMark mark{folder->second, own.attempt};
  auto left = ending.earlier(mark, ending.told_after);
  if (left.empty()) return true;
  say("rank " + std::to_string(own.rank) + " waits for " + left +
      " of an earlier attempt on this node, which SIGKILL has not ended yet");
  for (const auto give_up = Clock::now() + ending.longest; Clock::now() < give_up;) {
    if (is_over()) return false;
    left = ending.earlier(mark, kLookForEarlier);
    if (left.empty()) return true;
  }
  throw std::runtime_error(left + " of an earlier attempt is still on node " + agent.node +
                           ", and SIGKILL does not end it");
}

bool is_fenced(const protocol::Launch& launch, const rank::RankEnvironment& own) {
  if (launch.fence_folder.empty() || own.attempt <= 0) return false;
  const auto fence = base::ask_within<std::optional<protocol::Fence>>(
      kFencePatience, [path = launch.fence_folder] { return watch::read_fence(path); });
  const auto job = base::whole_number<std::int64_t>(own.job_id).value_or(0);
  return fence && *fence && !(*fence)->lets(job, own.attempt);
}

void link_log(const protocol::Launch& launch, const rank::RankEnvironment& own) {
  if (launch.log_link.empty()) return;
  try {
    const auto names = pattern_names(launch.job_name, own.rank, own.node_rank);
    const auto log = watch::rank_files(launch.log_folder, static_cast<std::uint32_t>(own.rank)).log;
    if (const auto name = expand_pattern(launch.log_link, names)) {
      place_link(std::filesystem::path(launch.working_folder) / *name, log);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "muster-agent: rank %d: slurm.output: %s\n", own.rank, error.what());
  }
}

}  // namespace agent::program
