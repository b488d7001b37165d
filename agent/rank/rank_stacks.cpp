#include "agent/rank/signals.h"

#include <cxxabi.h>
#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "agent/protocol/files.h"

namespace agent::rank {
namespace {

/// The file of this process in memory, for as long as it lives.
class OwnFile {
 public:
  OwnFile() {
    const int fd = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct stat status {};
    if (fd >= 0 && ::fstat(fd, &status) == 0 && status.st_size > 0) {
      size_ = static_cast<std::size_t>(status.st_size);
      auto* const at = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
      if (at != MAP_FAILED) bytes_ = static_cast<const char*>(at);
    }
    if (fd >= 0) ::close(fd);
  }
  ~OwnFile() {
    if (bytes_ != nullptr) ::munmap(const_cast<char*>(bytes_), size_);
  }
  OwnFile(const OwnFile&) = delete;
  OwnFile& operator=(const OwnFile&) = delete;

  /// `count` entries from this offset on; null: the file is shorter.
  template <typename Entry>
  const Entry* at(std::uint64_t offset, std::uint64_t count = 1) const {
    if (bytes_ == nullptr || offset > size_ || count > (size_ - offset) / sizeof(Entry)) return nullptr;
    return reinterpret_cast<const Entry*>(bytes_ + offset);
  }
  std::string_view text_at(std::uint64_t offset) const {
    if (bytes_ == nullptr || offset >= size_) return {};
    return {bytes_ + offset, ::strnlen(bytes_ + offset, size_ - offset)};
  }

 private:
  const char* bytes_ = nullptr;
  std::size_t size_ = 0;
};

/// Where the program lies in memory, beside the addresses of its file.
std::uintptr_t load_address() {
  std::uintptr_t address = 0;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        *static_cast<std::uintptr_t*>(out) = info->dlpi_addr;
        return 1;  // the first is the program
      },
      &address);
  return address;
}

/// "fsdp::Unit::wait()" of "_ZN4fsdp4Unit4waitEv"; what is no such name stays.
std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return status == 0 && text ? std::string(text.get()) : std::string(name);
}

/// The names of this program's own functions, from the table of symbols in its file. A library's are asked for with
/// dladdr(), which does not know those of a program.
class OwnSymbols {
 public:
  /// Reads the file of this process. Empty where it has no such table, as after strip.
  OwnSymbols() {
    const OwnFile file;
    const auto* header = file.at<ElfW(Ehdr)>(0);
    if (header == nullptr || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return;
    const auto* sections = file.at<ElfW(Shdr)>(header->e_shoff, header->e_shnum);
    if (sections == nullptr) return;
    const auto base = load_address();
    for (std::size_t i = 0; i < header->e_shnum; ++i) {
      const auto& table = sections[i];
      if (table.sh_type != SHT_SYMTAB || table.sh_link >= header->e_shnum) continue;
      const auto count = table.sh_size / sizeof(ElfW(Sym));
      const auto* symbols = file.at<ElfW(Sym)>(table.sh_offset, count);
      for (std::size_t k = 0; symbols != nullptr && k < count; ++k) {
        const auto& symbol = symbols[k];
        if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_value == 0 || symbol.st_size == 0) continue;
        functions_.push_back({base + symbol.st_value, base + symbol.st_value + symbol.st_size,
                              std::string(file.text_at(sections[table.sh_link].sh_offset + symbol.st_name))});
      }
    }
    std::ranges::sort(functions_, {}, &Function::begin);
  }

  /// The function of this address, as people read it; empty: it is none of the program's.
  std::string name_of(std::uintptr_t address) const {
    auto place = std::ranges::upper_bound(functions_, address, {}, &Function::begin);
    if (place == functions_.begin()) return "";
    --place;
    return address < place->end ? demangled(place->name.c_str()) : std::string();
  }

 private:
  struct Function {
    std::uintptr_t begin = 0, end = 0;
    std::string name;
  };
  std::vector<Function> functions_;  // by address
};

using std::chrono::milliseconds;

constexpr int kMostFrames = 64;
constexpr std::size_t kMostThreads = 256;
constexpr milliseconds kThreadPatience{100}, kLateThreadPatience{500}, kAllPatience{1200};
/// The handler itself, and the frame by which the kernel calls it.
constexpr int kFramesOfHandler = 2;

/// The stack that one thread notes of itself. The thread is asked by a ticket; only the ticket that stands here may be
/// taken, so a thread that answers too late writes nothing.
struct Capture {
  static constexpr std::uint32_t kFree = 0, kWriting = 1, kDone = 2, kFirstTicket = 3;
  std::atomic<std::uint32_t> ticket{kFree};
  int frames = 0;
  std::array<void*, kMostFrames> addresses{};
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "a signal handler may touch lock-free atomics only");

Capture capture;
sem_t asked;
pid_t own_pid = 0;

extern "C" void on_stack_signal(int, siginfo_t* info, void*) {
  const int error = errno;
  const bool is_own = info->si_code == SI_QUEUE && info->si_pid == own_pid;
  if (!is_own) {
    ::sem_post(&asked);
  } else {
    auto ticket = static_cast<std::uint32_t>(info->si_value.sival_int);
    if (ticket >= Capture::kFirstTicket && capture.ticket.compare_exchange_strong(ticket, Capture::kWriting)) {
      capture.frames = ::backtrace(capture.addresses.data(), kMostFrames);
      capture.ticket.store(Capture::kDone);
    }
  }
  errno = error;
}

class Writer {
 public:
  explicit Writer(int memory) : memory_(memory) {}

  [[noreturn]] void run() {
    while (true) {
      while (::sem_wait(&asked) != 0) {
      }
      write_all();
    }
  }

 private:
  void write_all() {
    if (!symbols_) symbols_ = std::make_unique<OwnSymbols>();
    const auto until = std::chrono::steady_clock::now() + kAllPatience;
    std::string text;
    for (const auto thread : threads()) {
      const auto left = std::chrono::duration_cast<milliseconds>(until - std::chrono::steady_clock::now());
      text += of_thread(thread, std::min(kThreadPatience, std::max(left, milliseconds(0))));
    }
    for (std::size_t at = 0; at < text.size();) {
      const auto count = ::write(memory_, text.data() + at, text.size() - at);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return;
      at += static_cast<std::size_t>(count);
    }
  }

  /// The main thread first, and this one not at all.
  static std::vector<pid_t> threads() {
    std::vector<pid_t> all;
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/task"), &::closedir);
    const auto own = static_cast<pid_t>(::syscall(SYS_gettid));
    while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr) {
      const std::string_view name = entry->d_name;
      pid_t thread = 0;
      const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), thread);
      if (error == std::errc() && end == name.data() + name.size() && thread != own) all.push_back(thread);
    }
    std::ranges::sort(all);
    if (all.size() > kMostThreads) all.resize(kMostThreads);
    return all;
  }

  std::string of_thread(pid_t thread, milliseconds patience) {
    auto text = "thread " + std::to_string(thread) + " " + name_of(thread) + "\n";
    if (!ask(thread, patience)) return text + "  (takes no signal now; see what the kernel tells)\n";
    for (int i = kFramesOfHandler; i < capture.frames; ++i) text += "  " + frame_text(capture.addresses[i], i) + "\n";
    capture.ticket.store(Capture::kFree);
    return text;
  }

  static std::string name_of(pid_t thread) {
    std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/comm");
    std::string name;
    std::getline(file, name);
    return name;
  }

  bool ask(pid_t thread, milliseconds patience) {
    // A thread that has begun to write and never ended owns the place for ever.
    if (capture.ticket.load() == Capture::kWriting) return false;
    if (++ticket_ < Capture::kFirstTicket) ticket_ = Capture::kFirstTicket;
    capture.ticket.store(ticket_);
    siginfo_t info{};
    info.si_signo = protocol::kStackSignal;
    info.si_code = SI_QUEUE;
    info.si_pid = own_pid;
    info.si_uid = ::getuid();
    info.si_value.sival_int = static_cast<int>(ticket_);
    const bool sent = ::syscall(SYS_rt_tgsigqueueinfo, own_pid, thread, protocol::kStackSignal, &info) == 0;
    if (sent && wait(patience)) return true;
    auto mine = ticket_;
    if (capture.ticket.compare_exchange_strong(mine, Capture::kFree)) return false;
    return wait(kLateThreadPatience);  // it is writing
  }

  static bool wait(milliseconds patience) {
    const auto until = std::chrono::steady_clock::now() + patience;
    while (capture.ticket.load() != Capture::kDone) {
      if (std::chrono::steady_clock::now() >= until) return false;
      std::this_thread::sleep_for(milliseconds(1));
    }
    return true;
  }

  std::string frame_text(void* address, int index) const {
    // All but the innermost are addresses behind a call, which may be its function's last.
    const auto inside = reinterpret_cast<std::uintptr_t>(address) - (index > kFramesOfHandler ? 1 : 0);
    const auto own = symbols_->name_of(inside);
    if (!own.empty()) return own;
    Dl_info found{};
    if (::dladdr(reinterpret_cast<void*>(inside), &found) == 0 || found.dli_fname == nullptr) return "??";
    const auto library = std::filesystem::path(found.dli_fname).filename().string();
    if (found.dli_sname != nullptr) return demangled(found.dli_sname) + " in " + library;
    char offset[32];
    std::snprintf(offset, sizeof offset, "+0x%lx", inside - reinterpret_cast<std::uintptr_t>(found.dli_fbase));
    return library + offset;
  }

  const int memory_;
  std::uint32_t ticket_ = Capture::kFirstTicket;
  std::unique_ptr<OwnSymbols> symbols_;
};

}  // namespace

void offer_stacks() {
  own_pid = ::getpid();
  const auto name = protocol::kStackMemory + std::to_string(own_pid);
  const int memory = ::memfd_create(name.c_str(), MFD_CLOEXEC);
  if (memory < 0 || ::sem_init(&asked, 0, 0) != 0) return;
  // The agent empties the file, and what comes then is to begin at its start.
  ::fcntl(memory, F_SETFL, O_APPEND);
  std::array<void*, 4> first;
  ::backtrace(first.data(), first.size());  // loads what it needs, which no handler may do
  sigset_t all, before;
  ::sigfillset(&all);
  ::sigdelset(&all, protocol::kStackSignal);  // the agent sends it to the thread of this name
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread([memory] {
      ::pthread_setname_np(::pthread_self(), protocol::kStackThread.data());  // a literal, so it ends with 0
      Writer(memory).run();
    }).detach();
    struct sigaction action {};
    action.sa_sigaction = on_stack_signal;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(protocol::kStackSignal, &action, nullptr);
  } catch (const std::system_error&) {  // the rank runs on without
    ::close(memory);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace agent::rank
