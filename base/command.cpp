#include "base/command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string_view>

#include "base/signals_blocked.h"

extern char** environ;

namespace base {
namespace {

bool dropped(std::string_view name, const Command& command) {
  for (const auto& [set, value] : command.environment) {
    if (set == name) return true;
  }
  return std::ranges::any_of(command.unset, [&](std::string_view pattern) {
    if (pattern.ends_with('*')) return name.starts_with(pattern.substr(0, pattern.size() - 1));
    return name == pattern;
  });
}

std::vector<std::string> environment_of(const Command& command) {
  std::vector<std::string> all;
  for (char** entry = command.inherit ? environ : nullptr; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    if (!dropped(text.substr(0, text.find('=')), command)) all.emplace_back(text);
  }
  for (const auto& [name, value] : command.environment) all.push_back(name + "=" + value);
  return all;
}

/// The file to execute, found as a shell would with the child's PATH. A child that inherits nothing uses this process's
/// PATH.
std::optional<std::string> program_file(const Command& command, const std::vector<std::string>& environment) {
  const auto& name = command.argv.front();
  if (name.find('/') != std::string::npos) return name;
  if (!command.inherit) return find_in_path(name);
  std::string path = kPlainPath;
  for (const auto& entry : environment) {
    if (entry.starts_with("PATH=")) path = entry.substr(5);
  }
  return find_in(path, name);
}

/// The descriptor itself, or a copy above 2 if it is one of stdin, stdout and stderr. exec closes the copy.
Fd above_stdio(Fd fd) {
  if (!fd || fd.get() > 2) return fd;
  return Fd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 3));
}

struct Pipe {
  Fd read, write;
};

Pipe make_pipe() {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  return {above_stdio(Fd(ends[0])), above_stdio(Fd(ends[1]))};
}

/// A file in memory holds the input. So no one has to feed the child, and a child that does not read cannot block the
/// caller.
Fd input_file(const std::string& input) {
  if (input.empty()) return above_stdio(Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)));
  auto file = above_stdio(Fd(::memfd_create("input", MFD_CLOEXEC)));
  for (std::size_t at = 0; file && at < input.size();) {
    const auto count = ::write(file.get(), input.data() + at, input.size() - at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Fd();
    at += static_cast<std::size_t>(count);
  }
  if (file) ::lseek(file.get(), 0, SEEK_SET);
  return file;
}

void close_between(unsigned first, unsigned last) {
  if (first > last || ::syscall(SYS_close_range, first, last, 0) == 0) return;
  for (unsigned fd = first; fd <= std::min(last, 65535U); ++fd) ::close(static_cast<int>(fd));
}

/// Everything that the child needs, prepared before the fork.
struct Plan {
  std::string file;
  std::vector<char*> argv, envp;
  int in, out, err, problem;
  std::vector<int> keep;  // ascending, above 2, `problem` among them
  bool dies_with_us;
  pid_t parent;
  std::uint64_t open_files;
};

/// Runs in the child. Only system calls are allowed from here on.
[[noreturn]] void become(const Plan& plan) {
  ::setpgid(0, 0);
  if (plan.dies_with_us) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != plan.parent) ::_exit(127);
  }
  for (int number = 1; number < NSIG; ++number) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(plan.in, 0);
  ::dup2(plan.out, 1);
  ::dup2(plan.err, 2);
  unsigned next = 3;
  for (const int fd : plan.keep) {
    close_between(next, static_cast<unsigned>(fd) - 1);
    next = static_cast<unsigned>(fd) + 1;
    if (fd != plan.problem) ::fcntl(fd, F_SETFD, 0);
  }
  close_between(next, ~0U);
  set_open_files(plan.open_files);
  ::execve(plan.file.c_str(), plan.argv.data(), plan.envp.data());
  const int error = errno;
  [[maybe_unused]] const auto written = ::write(plan.problem, &error, sizeof error);
  ::_exit(127);
}

/// Like fork, but without copying memory that exec would discard; for a large process the copy takes longer than the
/// program. Until exec the child shares this process's memory, so no signal handler may run in it.
pid_t spawn(const Plan& plan) {
  const base::SignalsBlocked blocked;
  const auto pid = ::vfork();
  if (pid == 0) become(plan);
  return pid;
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const auto& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

/// The error number that the child wrote when exec failed; 0 when exec succeeded.
int exec_problem(const Fd& pipe) {
  int error = 0;
  for (;;) {
    const auto count = ::read(pipe.get(), &error, sizeof error);
    if (count < 0 && errno == EINTR) continue;
    return count == sizeof error ? error : 0;
  }
}

Child failed(const std::string& name, const std::string& why) {
  Child child;
  child.why_not = name + ": " + why;
  return child;
}

}  // namespace

std::optional<std::string> find_in(const std::string& path, const std::string& name) {
  for (std::size_t begin = 0; begin <= path.size();) {
    const auto end = std::min(path.find(':', begin), path.size());
    const auto folder = path.substr(begin, end - begin);
    auto file = (folder.empty() ? "." : folder) + "/" + name;
    if (::access(file.c_str(), X_OK) == 0) return file;
    begin = end + 1;
  }
  return std::nullopt;
}

std::optional<std::string> find_in_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  return find_in(path == nullptr ? kPlainPath : path, name);
}

namespace {

std::filesystem::path started_file() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error);
}

}  // namespace

std::filesystem::path own_program() {
  auto started = started_file();
  if (!started.filename().native().starts_with("ld-linux")) return started;
  const auto here = reinterpret_cast<std::uintptr_t>(&own_program);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {  // "begin-end rights offset device inode   file"
    char* rest = nullptr;
    const auto begin = std::strtoull(line.c_str(), &rest, 16);
    const auto end = std::strtoull(rest + 1, nullptr, 16);
    if (begin <= here && here < end && line.find('/') != std::string::npos) return line.substr(line.find('/'));
  }
  return started;
}

std::filesystem::path programs_folder() {
  const auto own = own_program();
  const bool in_wheel = std::find(own.begin(), own.end(), "muster_hpc_worker") != own.end();
  if (own == started_file() && !in_wheel) return own.parent_path();
  // A starter in bin/ has become lib/muster/NAME, or a file of the wheel below the same prefix.
  std::error_code error;
  for (auto prefix = own.parent_path(); prefix.has_relative_path(); prefix = prefix.parent_path()) {
    const auto starter = prefix / "bin" / own.filename();
    if (std::filesystem::exists(starter, error)) return starter.parent_path();
  }
  return own.parent_path();
}

std::filesystem::path find_program(const std::string& name) {
  std::error_code error;
  const auto beside = programs_folder() / name;
  if (std::filesystem::exists(beside, error)) return beside;
  return find_in_path(name).value_or("");
}

Child start_child(const Command& command, bool dies_with_us, std::uint64_t open_files) {
  if (command.argv.empty()) return failed("a command without a name", "nothing to run");
  const auto& name = command.argv.front();
  const auto environment = environment_of(command);
  const auto file = program_file(command, environment);
  if (!file) return failed(name, "not found in PATH");

  auto in = input_file(command.input);
  auto out = make_pipe();
  auto err = make_pipe();
  auto problem = make_pipe();
  if (!in || !out.write || !err.write || !problem.write) {
    return failed(name, std::string("no descriptors or memory left: ") + ::strerror(errno));
  }
  Plan plan{*file,           pointers(command.argv), pointers(environment), in.get(),     out.write.get(),
            err.write.get(), problem.write.get(),    command.keep_fds,      dies_with_us, ::getpid(),
            open_files};
  plan.keep.push_back(plan.problem);
  std::erase_if(plan.keep, [](int fd) { return fd <= 2; });
  std::ranges::sort(plan.keep);
  plan.keep.erase(std::ranges::unique(plan.keep).begin(), plan.keep.end());

  const auto pid = spawn(plan);
  if (pid < 0) return failed(name, std::string("can't fork: ") + ::strerror(errno));
  ::setpgid(pid, pid);  // parent and child both set the group, so a kill never misses it
  problem.write.reset();
  if (const int error = exec_problem(problem.read); error != 0) {
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) continue;
    return failed(name, ::strerror(error));
  }
  Child child;
  child.pid = pid;
  child.out = std::move(out.read);
  child.err = std::move(err.read);
  ::fcntl(child.out.get(), F_SETFL, O_NONBLOCK);
  ::fcntl(child.err.get(), F_SETFL, O_NONBLOCK);
  child.exited = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  return child;
}

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

/// True if the child has ended. The child stays unreaped, so its process group's number cannot be reused.
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
