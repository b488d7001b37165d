#include "agent/stacks/take.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "agent/protocol/files.h"
#include "base/durable_file.h"
#include "base/numbers.h"
#include "base/process_table.h"

namespace agent::stacks {
namespace {

namespace fs = std::filesystem;

fs::path proc(pid_t pid, const char* name) {
  return fs::path("/proc") / std::to_string(pid) / name;
}

/// The threads of a process, the main thread first.
std::vector<pid_t> threads_of(pid_t pid) {
  std::vector<pid_t> threads;
  std::error_code error;
  for (fs::directory_iterator entry(proc(pid, "task"), error), end; !error && entry != end; entry.increment(error)) {
    const auto number = base::whole_number<pid_t>(entry->path().filename().string());
    if (number) threads.push_back(*number);
  }
  std::ranges::sort(threads, {}, [pid](pid_t thread) { return std::pair(thread != pid, thread); });
  return threads;
}

}  // namespace

std::vector<base::ProcessStat> with_descendants(pid_t pid, const std::vector<base::ProcessStat>& all) {
  std::vector<base::ProcessStat> found;
  const auto first = std::ranges::find(all, pid, &base::ProcessStat::pid);
  if (first == all.end() || first->is_dead()) return found;
  found.push_back(*first);
  for (std::size_t i = 0; i < found.size() && found.size() < kMostProcesses; ++i) {
    std::ranges::copy_if(all, std::back_inserter(found), [parent = found[i].pid](const base::ProcessStat& process) {
      return process.parent == parent && !process.is_dead();
    });
  }
  if (found.size() > kMostProcesses) found.resize(kMostProcesses);
  return found;
}

std::string read_proc(const fs::path& path, std::size_t most) {
  try {
    return base::read_small_file(path, most);
  } catch (const std::system_error&) {
    return {};
  }
}

std::string command_of(pid_t pid) {
  constexpr std::size_t kMost = 200;
  auto out = read_proc(proc(pid, "cmdline"), kMost);
  while (!out.empty() && out.back() == '\0') out.pop_back();
  for (auto& each : out) {
    // Section heads are lines.
    if (static_cast<unsigned char>(each) < ' ') each = ' ';
  }
  if (!out.empty()) return out;
  std::ifstream name(proc(pid, "comm"));
  std::getline(name, out);
  return out.empty() ? "a process" : out;
}

bool is_python(pid_t pid) {
  std::error_code error;
  return fs::read_symlink(proc(pid, "exe"), error).filename().string().starts_with("python");
}

std::optional<std::string> stack_memory(pid_t pid) {
  const auto status = base::process_status(pid);
  if (!status.catches(protocol::kStackSignal)) return std::nullopt;
  const auto wanted = std::string("/memfd:") + protocol::kStackMemory + status.own_pid;
  std::error_code error;
  for (fs::directory_iterator entry(proc(pid, "fd"), error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unreadable;
    const auto target = fs::read_symlink(entry->path(), unreadable).string();
    if (target == wanted || target == wanted + " (deleted)") return entry->path().string();
  }
  return std::nullopt;
}

std::optional<pid_t> stack_thread(pid_t pid) {
  for (const auto thread : threads_of(pid)) {
    std::string name;
    std::getline(std::ifstream(proc(pid, "task") / std::to_string(thread) / "comm"), name);
    if (name == protocol::kStackThread) return thread;
  }
  return std::nullopt;
}

namespace {

/// The system calls in which threads stand, and whether the first argument is a descriptor.
struct Call {
  long number;
  const char* name;
  bool of_descriptor = false;
};
constexpr Call kCalls[] = {
    {SYS_read, "read", true},
    {SYS_write, "write", true},
    {SYS_readv, "readv", true},
    {SYS_writev, "writev", true},
    {SYS_pread64, "pread64", true},
    {SYS_pwrite64, "pwrite64", true},
    {SYS_preadv, "preadv", true},
    {SYS_pwritev, "pwritev", true},
    {SYS_recvfrom, "recvfrom", true},
    {SYS_sendto, "sendto", true},
    {SYS_recvmsg, "recvmsg", true},
    {SYS_sendmsg, "sendmsg", true},
    {SYS_sendfile, "sendfile", true},
    {SYS_splice, "splice", true},
    {SYS_connect, "connect", true},
    {SYS_accept, "accept", true},
    {SYS_accept4, "accept4", true},
    {SYS_fsync, "fsync", true},
    {SYS_fdatasync, "fdatasync", true},
    {SYS_ftruncate, "ftruncate", true},
    {SYS_fallocate, "fallocate", true},
    {SYS_flock, "flock", true},
    {SYS_fcntl, "fcntl", true},
    {SYS_ioctl, "ioctl", true},
    {SYS_close, "close", true},
    {SYS_getdents64, "getdents64", true},
    {SYS_epoll_pwait, "epoll_pwait", true},
    {SYS_io_uring_enter, "io_uring_enter", true},
    {SYS_openat, "openat"},
    {SYS_statx, "statx"},
    {SYS_newfstatat, "newfstatat"},
    {SYS_unlinkat, "unlinkat"},
    {SYS_mkdirat, "mkdirat"},
    {SYS_renameat2, "renameat2"},
    {SYS_ppoll, "ppoll"},
    {SYS_pselect6, "pselect6"},
    {SYS_futex, "futex"},
    {SYS_nanosleep, "nanosleep"},
    {SYS_clock_nanosleep, "clock_nanosleep"},
    {SYS_wait4, "wait4"},
    {SYS_waitid, "waitid"},
    {SYS_restart_syscall, "restart_syscall"},
    {SYS_rt_sigtimedwait, "rt_sigtimedwait"},
    {SYS_rt_sigsuspend, "rt_sigsuspend"},
    {SYS_msgrcv, "msgrcv"},
    {SYS_msgsnd, "msgsnd"},
    {SYS_semtimedop, "semtimedop"},
    {SYS_mmap, "mmap"},
    {SYS_munmap, "munmap"},
    {SYS_madvise, "madvise"},
    {SYS_mprotect, "mprotect"},
    {SYS_msync, "msync"},
    {SYS_brk, "brk"},
    {SYS_clone, "clone"},
    {SYS_clone3, "clone3"},
    {SYS_execve, "execve"},
    {SYS_exit, "exit"},
    {SYS_exit_group, "exit_group"},
    {SYS_sched_yield, "sched_yield"},
    {SYS_process_vm_readv, "process_vm_readv"},
#ifdef SYS_poll  // an older set, which newer machines do not have
    {SYS_poll, "poll"},
    {SYS_select, "select"},
    {SYS_epoll_wait, "epoll_wait", true},
    {SYS_pause, "pause"},
    {SYS_open, "open"},
    {SYS_stat, "stat"},
    {SYS_lstat, "lstat"},
    {SYS_rename, "rename"},
    {SYS_unlink, "unlink"},
    {SYS_mkdir, "mkdir"},
    {SYS_vfork, "vfork"},
#endif
};

/// A file of a thread, without the newline at its end.
std::string read_line(const fs::path& path) {
  constexpr std::size_t kMost = 4096;
  auto text = read_proc(path, kMost);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::string state_text(char state) {
  switch (state) {
    case 'R':
      return "runs";
    case 'S':
      return "sleeps";
    case 'D':
      return "waits in the kernel and takes no signal";
    case 'T':
      return "is stopped by a signal";
    case 't':
      return "is stopped by a debugger";
    case 'Z':
    case 'X':
      return "is dead";
    default:
      return std::string("is in state ") + state;
  }
}

/// The target of a descriptor of the process: "socket:[41]", a path; empty: not known.
std::string target_of(pid_t pid, int descriptor) {
  std::error_code error;
  return fs::read_symlink(proc(pid, "fd") / std::to_string(descriptor), error).string();
}

/// The functions of the kernel that the thread is in. Only root may read them.
std::string kernel_frames(const fs::path& task) {
  constexpr int kMost = 12;
  std::istringstream lines(read_line(task / "stack"));
  std::string out, line;
  for (int i = 0; i < kMost && std::getline(lines, line); ++i) out += "    " + line + "\n";
  return out;
}

std::string thread_line(pid_t pid, const std::string& tid, const fs::path& task) {
  const auto known = read_line(task / "stat");
  if (known.empty()) return "";  // it has ended
  const auto stat = base::parse_stat(known);
  auto line = "thread " + tid + " " + stat.name + ": " + state_text(stat.state);
  int descriptor = -1;
  auto call = syscall_text(read_line(task / "syscall"), descriptor);
  if (stat.state != 'R' && !call.empty()) line += ", " + call;
  if (stat.state != 'R' && descriptor >= 0) {
    const auto target = target_of(pid, descriptor);
    if (!target.empty()) line += " (" + target + ")";
  }
  const auto channel = read_line(task / "wchan");
  if (!channel.empty() && channel != "0") line += ", wait channel " + channel;
  char used[40];
  std::snprintf(used, sizeof used, ", %.2f s of CPU\n",
                static_cast<double>(stat.cpu_ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK)));
  return line + used + kernel_frames(task);
}

}  // namespace

std::string syscall_text(std::string_view line, int& descriptor) {
  descriptor = -1;
  if (line.empty() || line == "running") return "";
  long number = 0;
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  if (error != std::errc()) return "";
  if (number < 0) return "in no system call";
  const auto* const call = std::ranges::find(kCalls, number, &Call::number);
  if (call == std::end(kCalls)) return "in call " + std::to_string(number);
  const auto text = std::string("in ") + call->name;
  if (!call->of_descriptor) return text;
  line.remove_prefix(static_cast<std::size_t>(end - line.data()));
  unsigned long first = 0;
  constexpr std::string_view kLead = " 0x";
  if (!line.starts_with(kLead)) return text;
  line.remove_prefix(kLead.size());
  if (std::from_chars(line.data(), line.data() + line.size(), first, 16).ec != std::errc()) return text;
  descriptor = static_cast<int>(first);
  return text + " of " + std::to_string(descriptor);
}

std::string kernel_threads(pid_t pid) {
  const auto threads = threads_of(pid);
  std::string out;
  for (std::size_t i = 0; i < threads.size() && i < kMostThreads; ++i) {
    const auto name = std::to_string(threads[i]);
    out += thread_line(pid, name, proc(pid, "task") / name);
  }
  if (threads.size() > kMostThreads) {
    out += "and " + std::to_string(threads.size() - kMostThreads) + " more threads\n";
  }
  return out;
}

}  // namespace agent::stacks
