#include "base/process_table.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

extern "C" {  // glibc 2.36 forgot to say so in it
#include <sys/pidfd.h>
}

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <system_error>

#include "base/fd.h"
#include "base/numbers.h"

namespace base {
namespace {

/// The text of a process's file "stat"; nothing if there is no such process.
std::optional<std::string> stat_line(const std::filesystem::path& process) {
  const auto path = process / "stat";
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) {
    if (errno == ENOENT || errno == ESRCH) return std::nullopt;
    throw std::system_error(errno, std::generic_category(), "cannot open " + path.string());
  }
  std::string line(1024, '\0');
  ssize_t count;
  do {
    count = ::read(file.get(), line.data(), line.size());
  } while (count < 0 && errno == EINTR);
  if (count == 0 || (count < 0 && errno == ESRCH)) return std::nullopt;
  if (count < 0) throw std::system_error(errno, std::generic_category(), "cannot read " + path.string());
  line.resize(static_cast<std::size_t>(count));
  return line;
}

}  // namespace

ProcessStat parse_stat(std::string_view line) {
  const auto open = line.find('(');
  const auto close = line.rfind(')');
  const auto refuse = [&](const char* what) {
    return std::runtime_error(std::string("/proc/<pid>/stat: ") + what + " in \"" + std::string(line) + "\"");
  };
  if (open == std::string_view::npos || close == std::string_view::npos || close < open || close + 3 > line.size()) {
    throw refuse("no program name");
  }
  ProcessStat stat;
  std::from_chars(line.data(), line.data() + open, stat.pid);
  stat.name = line.substr(open + 1, close - open - 1);
  stat.state = line[close + 2];
  constexpr std::size_t kFirst = 4, kLast = 24;  // the fields' numbers in proc(5)
  std::array<std::int64_t, kLast + 1> fields{};
  auto rest = line.substr(close + 3);
  for (auto field = kFirst; field <= kLast; ++field) {
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), fields[field]);
    if (error == std::errc::invalid_argument) throw refuse("too few fields");
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
  }
  stat.parent = fields[4];
  stat.group = fields[5];
  stat.session = fields[6];
  stat.cpu_ticks = fields[14] + fields[15];
  stat.waited_ticks = fields[16] + fields[17];
  stat.start_time = static_cast<std::uint64_t>(fields[22]);
  stat.resident_pages = stat.is_dead() ? 0 : fields[24];
  return stat;
}

std::optional<ProcessStat> read_stat(std::int64_t pid) {
  const auto line = stat_line("/proc/" + std::to_string(pid));
  return line ? std::optional(parse_stat(*line)) : std::nullopt;
}

std::optional<std::uint64_t> context_switches(std::int64_t pid) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  std::optional<std::uint64_t> sum;
  for (std::string line; std::getline(status, line);) {
    if (line.find("voluntary_ctxt_switches:") == std::string::npos) continue;  // nonvoluntary_ctxt_switches, too
    std::uint64_t number = 0;
    if (std::istringstream(line.substr(line.find(':') + 1)) >> number) sum = sum.value_or(0) + number;
  }
  return sum;
}

ProcessMemory process_memory() {
  ProcessMemory out;
  std::int64_t total = 0, resident = 0;
  if (std::ifstream("/proc/self/statm") >> total >> resident) out.resident_bytes = resident * ::sysconf(_SC_PAGESIZE);
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) == 0) out.peak_bytes = std::int64_t{usage.ru_maxrss} * 1024;
  out.peak_bytes = std::max(out.peak_bytes, out.resident_bytes);
  return out;
}

std::vector<ProcessStat> all_processes(const std::filesystem::path& proc, bool skips_nonsense) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(proc.c_str()), &::closedir);
  if (!folder) throw std::system_error(errno, std::generic_category(), "cannot open " + proc.string());
  std::vector<ProcessStat> all;
  while (const dirent* entry = ::readdir(folder.get())) {
    if (!whole_number<std::int64_t>(entry->d_name)) continue;
    try {
      if (const auto line = stat_line(proc / entry->d_name)) all.push_back(parse_stat(*line));
    } catch (const std::system_error& error) {
      const int why = error.code().value();
      if (why != EACCES && why != EPERM) throw;  // hidepid=1 hides the processes of other users
    } catch (const std::runtime_error&) {
      if (!skips_nonsense) throw;
    }
  }
  return all;
}

std::optional<std::string> variable_of_process(std::int64_t pid, std::string_view name) {
  constexpr std::size_t kMost = 8 << 20;  // more than the kernel lets a program have
  const Fd file(::open(("/proc/" + std::to_string(pid) + "/environ").c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  std::string all(1, '\0');
  char part[16 << 10];
  for (;;) {
    const auto count = ::read(file.get(), part, sizeof part);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0 || all.size() > kMost) break;
    all.append(part, static_cast<std::size_t>(count));
  }
  const auto start = std::string(1, '\0') + std::string(name) + "=";
  const auto at = all.find(start);
  if (at == std::string::npos) return std::nullopt;
  const auto begin = at + start.size();
  return all.substr(begin, all.find('\0', begin) - begin);
}

std::vector<std::string> outputs_of_process(std::int64_t pid) {
  std::vector<std::string> all;
  for (const char* number : {"1", "2"}) {
    std::error_code none;
    const auto file = std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/fd/" + number, none);
    if (!none) all.push_back(file.string());
  }
  return all;
}

std::string real_path(const std::string& path) {
  std::error_code none;
  const auto real = std::filesystem::weakly_canonical(path, none);
  return none ? path : real.string();
}

void add_started_by(std::vector<ProcessStat>& found, std::vector<ProcessStat>& others) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto is_of_it = [pid = found[i].pid](const ProcessStat& process) {
      return process.parent == pid || process.session == pid;
    };
    std::ranges::copy_if(others, std::back_inserter(found), is_of_it);
    std::erase_if(others, is_of_it);
  }
}

ProcessStatus process_status(std::int64_t pid) {
  ProcessStatus out;
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, word;
    words >> name;
    if (name == "NSpid:") {
      while (words >> word) out.own_pid = word;
    } else if (name == "SigCgt:" && words >> word) {
      std::from_chars(word.data(), word.data() + word.size(), out.caught, 16);
    }
  }
  if (out.own_pid.empty()) out.own_pid = std::to_string(pid);
  return out;
}

std::string boot_id() {
  constexpr const char* kFile = "/proc/sys/kernel/random/boot_id";
  const Fd file(::open(kFile, O_RDONLY | O_CLOEXEC));
  char text[64];
  const auto count = file ? ::read(file.get(), text, sizeof text) : -1;
  if (count < 0) throw std::system_error(errno, std::generic_category(), std::string("cannot read ") + kFile);
  std::string id(text, static_cast<std::size_t>(count));
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

bool signal_exactly(const ProcessStat& process, int signal) {
  const Fd handle(::pidfd_open(static_cast<pid_t>(process.pid), 0));
  if (!handle) return false;
  const auto now = read_stat(process.pid);
  return now && now->start_time == process.start_time && ::pidfd_send_signal(handle.get(), signal, nullptr, 0) == 0;
}

void kill_exactly(const ProcessStat& process) {
  signal_exactly(process, SIGKILL);
}

}  // namespace base
