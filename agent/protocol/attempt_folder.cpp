#include "agent/protocol/attempt_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <system_error>

#include "base/numbers.h"

namespace agent::protocol {
namespace {

using base::Fd;

constexpr std::size_t kMaxFileBytes = 64 << 20;  // far more than any environment or list of facts

/// The whole file; nothing if there is none.
std::optional<std::string> read_file_at(int folder, const std::string& name) {
  const Fd fd(::openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) {
    if (errno == ENOENT) return std::nullopt;
    throw_errno("cannot open " + name);
  }
  std::string text;
  char buffer[16384];
  for (;;) {
    const auto count = ::read(fd.get(), buffer, sizeof buffer);
    if (count == 0) return text;
    if (text.size() > kMaxFileBytes) throw std::runtime_error(name + " is too large to be muster's");
    if (count > 0) {
      text.append(buffer, static_cast<std::size_t>(count));
    } else if (errno != EINTR) {
      throw_errno("cannot read " + name);
    }
  }
}

}  // namespace

void throw_errno(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

Fd open_folder(const std::filesystem::path& folder) {
  Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) throw_errno("cannot open folder " + folder.string());
  return fd;
}

std::optional<Fd> try_lock(int folder) {
  Fd fd(::openat(folder, kLockFile, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) throw_errno("cannot open the attempt's lock file");
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  if (errno == EWOULDBLOCK) return std::nullopt;
  throw_errno("cannot lock the attempt's lock file");
}

std::optional<Launch> read_launch_in(int folder) {
  const auto text = read_file_at(folder, kLaunchFile);
  return text ? std::optional(parse_launch(*text, kLaunchFile)) : std::nullopt;
}

std::string attempt_mark_in(int folder) {
  return attempt_mark_in(read_file_at(folder, kLaunchFile).value_or(""));
}

Status read_status(int folder, std::uint32_t first_rank) {
  return parse_status(read_file_at(folder, status_file(first_rank)).value_or(""));
}

namespace {

constexpr std::string_view kPid = "pid ", kRunning = "running", kFailed = "failed ";

void take_line(StartReport& report, std::string_view line) {
  if (line.starts_with(kPid)) report.pid = base::whole_number<std::int64_t>(line.substr(kPid.size()));
  if (line == kRunning) report.running = true;
  // "failed 2 no room": a kind, a space, and a reason.
  if (!line.starts_with(kFailed) || line.size() < kFailed.size() + 3) return;
  const char kind = line[kFailed.size()];
  report.failure = kind >= '0' && kind <= '3' ? StartFailure{kind} : StartFailure::kMayPass;
  report.reason = line.substr(kFailed.size() + 2);
}

}  // namespace

std::string pid_line(std::int64_t pid) {
  return std::string(kPid) + std::to_string(pid) + "\n";
}

std::string running_line() {
  return std::string(kRunning) + "\n";
}

std::string failed_line(StartFailure kind, const std::string& reason) {
  auto line = std::string(kFailed) + static_cast<char>(kind) + " " + reason;
  std::ranges::replace(line, '\n', ' ');
  return line + "\n";
}

StartReport parse_start_report(std::string_view text) {
  StartReport report;
  for (auto end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    take_line(report, text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return report;
}

}  // namespace agent::protocol
