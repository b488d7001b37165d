#include "agent/program/before_start.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pwd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <system_error>

#include "agent/protocol/files.h"
#include "agent/protocol/launch.h"
#include "agent/watch/agent_files.h"
#include "base/durable_file.h"
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

void link_log(const protocol::Launch& launch, const rank::RankEnvironment& own, const spec::Environment& variables) {
  if (launch.log_link.empty()) return;
  try {
    const auto names = pattern_names(variables, launch.job_name, own.rank, own.node_rank);
    const auto log = watch::rank_files(launch.log_folder, static_cast<std::uint32_t>(own.rank)).log;
    if (const auto name = expand_pattern(launch.log_link, names)) {
      place_link(std::filesystem::path(launch.working_folder) / *name, log);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "muster-agent: rank %d: slurm.output: %s\n", own.rank, error.what());
  }
}

namespace {

constexpr std::size_t kWidest = 10;            // as sbatch
constexpr const char* kNoTask = "4294967294";  // Slurm's own, outside an array

std::string user_name() {
  const passwd* entry = ::getpwuid(::geteuid());
  return entry == nullptr ? std::to_string(::geteuid()) : std::string(entry->pw_name);
}

bool is_number(char sign) {
  return std::string_view("jJsAant").find(sign) != std::string_view::npos;
}

}  // namespace

PatternNames pattern_names(const spec::Environment& variables, const std::string& job_name, int rank, int node_rank) {
  const auto text_of = [&](const char* name, const std::string& otherwise = {}) {
    const auto found = variables.find(name);
    return found == variables.end() || found->second.empty() ? otherwise : found->second;
  };
  auto name = job_name;
  std::ranges::replace(name, '/', '_');
  const auto job = text_of("SLURM_JOB_ID"), step = text_of("SLURM_STEP_ID"), node = text_of("SLURMD_NODENAME");
  return {{'x', name},
          {'j', job},
          {'J', step.empty() ? job : job + "." + step},
          {'s', step},
          {'A', text_of("SLURM_ARRAY_JOB_ID", job)},  // outside an array the job itself
          {'a', text_of("SLURM_ARRAY_TASK_ID", kNoTask)},
          {'N', node.substr(0, node.find('.'))},
          {'u', user_name()},
          {'n', std::to_string(node_rank)},
          {'t', std::to_string(rank)},
          {'%', "%"}};
}

std::optional<std::string> expand_pattern(const std::string& pattern, const PatternNames& names) {
  std::string expanded;
  bool each_rank = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      expanded += pattern[i];
      continue;
    }
    std::size_t end = i + 1;
    while (end < pattern.size() && pattern[end] >= '0' && pattern[end] <= '9') ++end;
    const char sign = end < pattern.size() ? pattern[end] : '\0';
    const auto value = names.find(sign);
    if (value == names.end()) {
      expanded += '%';
      continue;
    }
    each_rank |= sign == 't';
    const auto digits = pattern.substr(i + 1, end - i - 1);
    if (is_number(sign) && !digits.empty()) {
      const auto width = digits.size() > 2 ? kWidest : std::min<std::size_t>(std::stoul(digits), kWidest);
      if (value->second.size() < width) expanded.append(width - value->second.size(), '0');
    }
    expanded += value->second;
    i = end;
  }
  if (!each_rank && names.at('t') != "0") return std::nullopt;
  return expanded;
}

void place_link(const std::filesystem::path& link, const std::filesystem::path& log) {
  const auto give_up = [&](const std::string& why) { throw std::runtime_error(link.string() + ": " + why); };
  std::error_code error;
  if (link.has_parent_path()) std::filesystem::create_directories(link.parent_path(), error);
  if (error) give_up("its folder cannot be made: " + error.message());
  const auto there = std::filesystem::symlink_status(link, error);
  if (std::filesystem::exists(there) && !std::filesystem::is_symlink(there)) {
    give_up("there is a file of that name already; move it away, or change slurm.output");
  }
  const std::filesystem::path fresh = link.string() + "." + std::to_string(::getpid());
  std::filesystem::create_symlink(log, fresh, error);
  if (error) give_up(error.message());
  std::filesystem::rename(fresh, link, error);
  if (!error) return;
  const auto why = error.message();
  std::filesystem::remove(fresh, error);
  give_up(why);
}

void prepare_element(const std::filesystem::path& set_file, std::uint32_t index,
                     const std::filesystem::path& attempt_folder) {
  const auto set_folder = set_file.parent_path();
  const auto launch = protocol::launch_of_set(set_folder / protocol::kSetLaunchFile, index);
  // Where the log is, before anything that may fail.
  base::make_private_folder(attempt_folder);
  base::write_file_durably(attempt_folder / protocol::kElementFile, protocol::to_text({set_folder.string(), index}));
  switch (watch::make_start(watch::start_of(launch, attempt_folder))) {
    case watch::Fencing::kRaised:
      break;
    case watch::Fencing::kRaisedAgain:
      std::fprintf(stderr, "muster-agent: a rank of an older attempt holds %s; it was fenced all the same\n",
                   launch.fence_folder.c_str());
      break;
    case watch::Fencing::kOver:
      throw std::runtime_error("its attempt is over already: a later one has " + launch.fence_folder);
  }
  base::write_file_durably(attempt_folder / protocol::kLaunchFile, protocol::to_text(launch));
}

}  // namespace agent::program
