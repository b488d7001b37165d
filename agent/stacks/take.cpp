#include "agent/stacks/take.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern "C" {  // glibc 2.36 forgot to say so in it
#include <sys/pidfd.h>
}

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <system_error>
#include <utility>

#include "agent/protocol/files.h"
#include "base/command.h"
#include "base/signals_blocked.h"
#include "base/words.h"

namespace agent::stacks {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLook{20};
/// A text that has not grown for so long is whole.
constexpr milliseconds kQuiet{100};

struct Process {
  base::ProcessStat stat;
  bool python = false;
  std::string memory{};  // where it writes its stack; empty: nowhere
  off_t bytes = 0;       // written so far
  Clock::time_point grown_at{};
  std::string frames{};
  std::string_view by{};
};

Process look_at(const base::ProcessStat& stat) {
  Process out{.stat = stat};
  const auto pid = static_cast<pid_t>(stat.pid);
  out.python = is_python(pid);
  // Whoever is stopped writes nothing before it goes on.
  if (!stat.is_stopped() && stat.state != 't') out.memory = stack_memory(pid).value_or("");
  return out;
}

/// To the thread that waits for it, or to the process.
bool send_signal(pid_t pid, const base::Fd& process) {
  if (const auto thread = stack_thread(pid)) {
    return ::syscall(SYS_tgkill, pid, *thread, protocol::kStackSignal) == 0;
  }
  return ::pidfd_send_signal(process.get(), protocol::kStackSignal, nullptr, 0) == 0;
}

/// Asks the process for its stack. What it wrote before is dropped, unless it is asked `again`.
void ask(Process& process, bool again = false) {
  if (process.memory.empty()) return;
  const auto pid = static_cast<pid_t>(process.stat.pid);
  const base::Fd handle(::pidfd_open(pid, 0));
  const auto now = base::read_stat(process.stat.pid);
  const bool same = handle && now && now->start_time == process.stat.start_time;
  const base::Fd memory(same ? ::open(process.memory.c_str(), O_WRONLY | O_CLOEXEC) : -1);
  if (!memory || (!again && ::ftruncate(memory.get(), 0) != 0) || !send_signal(pid, handle)) {
    process.memory.clear();
  }
}

/// True once all of its text is there.
bool has_written(Process& process, Clock::time_point now) {
  struct stat status {};
  if (::stat(process.memory.c_str(), &status) != 0) {
    process.memory.clear();  // it has ended
    return true;
  }
  if (status.st_size != process.bytes) {
    process.bytes = status.st_size;
    process.grown_at = now;
    return false;
  }
  return process.bytes > 0 && now - process.grown_at >= kQuiet;
}

/// Takes the stacks that processes write themselves, all at the same time.
void take_own(std::vector<Process*> processes, milliseconds patience) {
  for (auto* process : processes) ask(*process);
  std::erase_if(processes, [](const Process* process) { return process->memory.empty(); });
  auto waiting = processes;
  const auto began = Clock::now(), until = began + patience;
  for (bool asked_again = false; !waiting.empty() && Clock::now() < until;) {
    std::this_thread::sleep_for(kLook);
    const auto now = Clock::now();
    std::erase_if(waiting, [now](Process* process) { return has_written(*process, now); });
    if (asked_again || now - began < patience / 3) continue;
    asked_again = true;
    // A thread of Python that waits for the interpreter's lock writes without it then.
    for (auto* process : waiting) {
      if (process->python && process->bytes == 0) ask(*process, true);
    }
  }
  for (auto* process : processes) {
    process->frames = read_proc(process->memory, protocol::kMostStackBytes);
    process->by = process->python ? protocol::kByFaulthandler : protocol::kByWorker;
  }
}

/// The output of a program within the time. The agent waits for all its children, so how this one ended is not known.
std::string output_of(const base::Command& command, Clock::time_point until) {
  auto child = base::start_child(command, true, 0);
  if (child.pid < 0) return "";
  std::string out;
  for (bool open = true; open && out.size() < command.max_output_bytes;) {
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    pollfd polled{child.out.get(), POLLIN, 0};
    if (left <= milliseconds(0) || ::poll(&polled, 1, static_cast<int>(left.count())) == 0) {
      out.clear();  // the half of a stack would mislead
      break;
    }
    char part[16 << 10];
    const auto count = ::read(child.out.get(), part, sizeof part);
    open = count > 0 || (count < 0 && (errno == EINTR || errno == EAGAIN));
    if (count > 0) out.append(part, static_cast<std::size_t>(count));
  }
  if (child.exited) ::pidfd_send_signal(child.exited.get(), SIGKILL, nullptr, 0);
  // Others may have waited for it already.
  while (child.exited && ::waitpid(child.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return out;
}

/// py-spy as the rank's own PATH has it, or this process's.
std::optional<std::string> find_py_spy(pid_t pid) {
  constexpr const char* kName = "py-spy";
  if (const auto path = base::variable_of_process(pid, "PATH")) {
    if (auto found = base::find_in(*path, kName)) return found;
  }
  return base::find_in_path(kName);
}

void take_by_py_spy(Process& process, Clock::time_point until) {
  const auto pid = static_cast<pid_t>(process.stat.pid);
  const auto program = find_py_spy(pid);
  if (!program) return;
  process.frames = output_of(
      {.argv = {*program, "dump", "--pid", std::to_string(pid)}, .max_output_bytes = protocol::kMostStackBytes}, until);
  process.by = protocol::kByPySpy;
}

/// Bytes that are no UTF-8, and controls that a terminal would obey, become "?".
std::string plain(const std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (std::string_view left = text; !left.empty();) {
    const auto size = base::character_bytes(left);
    const auto byte = static_cast<unsigned char>(left.front());
    const bool is_control = (byte < ' ' && byte != '\n' && byte != '\t') || byte == 0x7F;
    if (size == 0 || is_control) {
      out += '?';
    } else {
      out.append(left.substr(0, size));
    }
    left.remove_prefix(std::max<std::size_t>(size, 1));
  }
  return out;
}

std::string text_of(const Process& process) {
  const auto pid = static_cast<pid_t>(process.stat.pid);
  const auto command = command_of(pid);
  std::string out;
  if (!process.frames.empty()) {
    out += protocol::section_head(process.stat.pid, command, process.by) + process.frames;
    if (out.back() != '\n') out += '\n';
  }
  const auto threads = kernel_threads(pid);
  if (!threads.empty()) out += protocol::section_head(process.stat.pid, command, protocol::kByKernel) + threads;
  return out;
}

std::string text_of(const std::vector<Process>& processes) {
  std::string out;
  for (const auto& process : processes) {
    out += plain(text_of(process));
    if (out.size() <= protocol::kMostStackBytes) continue;
    out.resize(out.rfind('\n', protocol::kMostStackBytes - protocol::kStackCut.size() - 1) + 1);
    return out + std::string(protocol::kStackCut);
  }
  return out;
}

}  // namespace

std::vector<std::string> take_stacks(const std::vector<Rank>& ranks, const Patience& patience) {
  const auto all = base::all_processes();
  std::vector<std::vector<Process>> found;
  for (const auto& rank : ranks) {
    auto& processes = found.emplace_back();
    for (const auto& stat : with_descendants(rank.pid, all)) processes.push_back(look_at(stat));
  }
  std::vector<Process*> writing;
  for (auto& processes : found) {
    for (auto& process : processes) {
      if (!process.memory.empty()) writing.push_back(&process);
    }
  }
  take_own(writing, patience.own);
  const auto until = Clock::now() + patience.other;
  for (auto& processes : found) {
    for (auto& process : processes) {
      const bool asks = process.python && process.frames.empty() && !process.stat.is_stopped();
      if (asks && Clock::now() < until) take_by_py_spy(process, until);
    }
  }
  std::vector<std::string> out;
  for (const auto& processes : found) out.push_back(text_of(processes));
  return out;
}

Taker::~Taker() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Taker::ask(std::uint64_t number, std::vector<Rank> ranks) {
  std::lock_guard lock(mutex_);
  if (number <= newest_) return;
  newest_ = number;
  waits_ = true;
  ranks_ = std::move(ranks);
  wake_.notify_all();
  if (thread_.joinable()) return;
  try {
    const base::SignalsBlocked quiet;  // signals are the main thread's
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {  // the ranks run on without
    std::fprintf(stderr, "muster: nobody takes the stacks of the ranks: %s\n", error.what());
  }
}

void Taker::run() {
  std::unique_lock lock(mutex_);
  while (!closed_) {
    wake_.wait(lock, [this] { return closed_ || waits_; });
    if (!std::exchange(waits_, false) || closed_) continue;
    const auto number = newest_;
    const auto ranks = ranks_;
    lock.unlock();
    try {
      const auto texts = take_stacks(ranks);
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        if (!texts[i].empty()) keep_(number, ranks[i].rank, texts[i]);
      }
    } catch (const std::exception& error) {
      std::fprintf(stderr, "muster: the stacks of the ranks could not be taken: %s\n", error.what());
    }
    lock.lock();
  }
}

}  // namespace agent::stacks
