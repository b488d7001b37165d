#include "agent/watch/agent_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <system_error>
#include <thread>

#include "agent/watch/folder_walk.h"
#include "base/durable_file.h"
#include "base/fd.h"
#include "base/numbers.h"
#include "spec/variables.h"

namespace agent::watch {

RankFiles rank_files(const std::filesystem::path& log_folder, std::uint32_t rank) {
  const auto stem = (log_folder / (std::string(protocol::kRankStart) + std::to_string(rank))).string();
  return {stem + std::string(protocol::kLogEnd), stem + ".error.json", stem + ".stop.json", stem + ".report.jsonl"};
}

std::map<std::string, std::string> file_variables(const RankFiles& files) {
  return {{spec::variable::kReport, files.report.string()},
          {spec::variable::kStop, files.stop.string()},
          {spec::variable::kErrorFile, files.error.string()}};
}

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFencePatience{5000};

// flock has no time limit of its own.
bool lock_within(int fd, milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(milliseconds(20));
  }
  return true;
}

/// The variable; empty: the launch file does not have it.
std::string text_of(const protocol::Launch& launch, const char* name) {
  const auto found = launch.env.find(name);
  return found == launch.env.end() ? std::string() : found->second;
}

std::int64_t number_of(const protocol::Launch& launch, const char* name) {
  return base::whole_number<std::int64_t>(text_of(launch, name)).value_or(0);
}

}  // namespace

AttemptStart start_of(const protocol::Launch& launch, const std::filesystem::path& attempt_folder) {
  namespace variable = spec::variable;
  return {.key = {number_of(launch, variable::kJobId), number_of(launch, variable::kAttempt)},
          .folder = attempt_folder,
          .log_folder = launch.log_folder,
          .fence_folder = launch.unprepared ? launch.fence_folder : std::string(),
          .run_path = text_of(launch, variable::kRunFile),
          .run_file = launch.run_file,
          .cache_folder = launch.cache_folder};
}

Fencing make_start(const AttemptStart& start) {
  base::make_private_folder(start.folder);
  base::make_folders(start.log_folder);
  auto fencing = Fencing::kRaised;
  if (!start.fence_folder.empty()) {
    if (!raise_fence(start.fence_folder, start.key, kFencePatience)) fencing = Fencing::kRaisedAgain;
    const auto fence = read_fence(start.fence_folder);
    if (fence && !fence->lets(start.key.job, start.key.attempt)) return Fencing::kOver;
  }
  if (start.run_file.empty()) return fencing;
  if (!start.cache_folder.empty()) base::make_private_folder(start.cache_folder);
  base::write_file_durably(start.run_path, start.run_file);
  return fencing;
}

bool raise_fence(const std::filesystem::path& folder, const protocol::Fence& key, milliseconds patience) {
  base::make_folders(folder);
  const auto lock_path = folder / protocol::kFenceLock;
  const base::Fd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock) throw std::system_error(errno, std::generic_category(), "cannot open " + lock_path.string());
  const bool locked = lock_within(lock.get(), patience);
  const auto fence = read_fence(folder);
  if (!fence || fence->job != key.job || fence->attempt < key.attempt) {
    base::write_file_durably(folder / protocol::kFenceFile, protocol::fence_text(key));
  }
  return locked;
}

std::optional<protocol::Fence> read_fence(const std::filesystem::path& folder) {
  constexpr std::size_t kMostBytes = 64;
  return protocol::parse_fence(read_part(folder / protocol::kFenceFile, 0, kMostBytes).bytes);
}

std::string to_text(const StopNotice& notice) {
  char deadline[40];
  std::snprintf(deadline, sizeof deadline, "%lld.%03d", static_cast<long long>(notice.deadline_ms / 1000),
                static_cast<int>(notice.deadline_ms % 1000));
  const auto at_step = notice.at_step ? R"(,"at_step":)" + std::to_string(*notice.at_step) : std::string();
  return R"({"why":")" + notice.why + R"(","save":)" + (notice.save ? "true" : "false") + at_step + R"(,"deadline":)" +
         deadline + "}\n";
}

// Not flushed to the disk: it is read on this machine, and soon.
bool write_stop_file(const std::filesystem::path& file, const StopNotice& notice) {
  const auto draft = file.string() + ".new";
  const auto text = to_text(notice);
  {
    const base::Fd fd(::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!fd || ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) return false;
  }
  return ::rename(draft.c_str(), file.c_str()) == 0;
}

bool looks_for(const std::filesystem::path& stop_file) {
  return ::access((stop_file.string() + kAsked).c_str(), F_OK) == 0;
}

}  // namespace agent::watch
