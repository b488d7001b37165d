#include "base/command.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/child.h"

namespace base {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLook{20};  // polling interval for the exit where the kernel has no pidfd

/// One of the child's outputs.
class Output {
 public:
  Output(Fd& fd, std::string& text, bool& cut, std::size_t limit) : fd_(fd), text_(text), cut_(cut), limit_(limit) {}

  int fd() const { return fd_.get(); }

  /// Reads the available output. Bytes beyond the limit are discarded, so that the child does not block.
  void read() {
    std::array<char, 65536> buffer;
    while (fd_) {
      const auto count = ::read(fd_.get(), buffer.data(), buffer.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN) return;
      if (count <= 0) return fd_.reset();
      const auto fits = std::min(static_cast<std::size_t>(count), limit_ - text_.size());
      text_.append(buffer.data(), fits);
      if (fits < static_cast<std::size_t>(count)) cut_ = true;
      if (cut_) return;  // one piece at a time, so that the time limit also stops a child that never stops writing
    }
  }

 private:
  Fd& fd_;
  std::string& text_;
  bool& cut_;
  std::size_t limit_;
};

/// Whether the child has ended. The child stays unreaped, so its process group's number cannot be reused.
bool has_ended(pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid;
}

/// Reads until the child has ended. Returns false if the time limit comes first.
bool follow(const Child& child, Output& out, Output& err, Clock::time_point limit) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit - Clock::now());
    if (has_ended(child.pid)) return true;
    if (left.count() <= 0) return false;
    const auto wait = child.exited ? left : std::min(left, kLook);
    std::array<pollfd, 3> fds = {{{out.fd(), POLLIN, 0}, {err.fd(), POLLIN, 0}, {child.exited.get(), POLLIN, 0}}};
    ::poll(fds.data(), fds.size(), static_cast<int>(std::min<std::int64_t>(wait.count(), 60'000)));
    if (fds[0].revents != 0) out.read();
    if (fds[1].revents != 0) err.read();
  }
}

void reap(pid_t pid, CommandResult& result) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return;
  }
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status) && !result.timed_out) result.signal = WTERMSIG(status);
  if (result.timed_out) result.exit_code = -1;
}

}  // namespace

CommandResult ProcessRunner::run(const Command& command) {
  const auto start = Clock::now();
  CommandResult result;
  auto child = start_child(command, !outlive_us_, open_files_);
  if (child.pid < 0) {
    result.could_not_start = child.why_not;
    return result;
  }
  Output out(child.out, result.out, result.out_cut, command.max_output_bytes);
  Output err(child.err, result.err, result.err_cut, command.max_output_bytes);
  if (!follow(child, out, err, start + command.time_limit)) {
    result.timed_out = true;
    ::kill(-child.pid, SIGKILL);
  }
  out.read();
  err.read();
  reap(child.pid, result);
  result.took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start);
  return result;
}

}  // namespace base
