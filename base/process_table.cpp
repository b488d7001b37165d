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
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#include "base/fd.h"

namespace base {

ProcessStat parse_stat(std::string_view line) {
  const auto open = line.find('(');
  const auto close = line.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) {
    throw std::runtime_error("/proc/<pid>/stat: no program name in \"" + std::string(line) + "\"");
  }
  ProcessStat stat;
  std::from_chars(line.data(), line.data() + open, stat.pid);
  stat.name = line.substr(open + 1, close - open - 1);
  std::istringstream rest{std::string(line.substr(close + 1))};
  rest >> stat.state >> stat.parent >> stat.group >> stat.session;  // fields 3 to 6
  std::string skipped;
  for (int field = 7; field <= 13; ++field) rest >> skipped;
  std::uint64_t user = 0, system = 0;
  rest >> user >> system;  // fields 14 and 15
  stat.cpu_ticks = user + system;
  for (int field = 16; field <= 21; ++field) rest >> skipped;
  rest >> stat.start_time;  // field 22
  if (!rest) throw std::runtime_error("/proc/<pid>/stat: too few fields in \"" + std::string(line) + "\"");
  return stat;
}

std::optional<ProcessStat> read_stat(std::int64_t pid) {
  const auto path = "/proc/" + std::to_string(pid) + "/stat";
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    if (errno == ENOENT || errno == ESRCH) return std::nullopt;
    throw std::system_error(errno, std::generic_category(), "cannot open " + path);
  }
  std::array<char, 1024> buffer;
  ssize_t count;
  do {
    count = ::read(fd, buffer.data(), buffer.size());
  } while (count < 0 && errno == EINTR);
  const int error = errno;
  ::close(fd);
  if (count == 0 || (count < 0 && error == ESRCH)) return std::nullopt;
  if (count < 0) throw std::system_error(error, std::generic_category(), "cannot read " + path);
  return parse_stat({buffer.data(), static_cast<std::size_t>(count)});
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
  if (std::FILE* file = std::fopen("/proc/self/statm", "re"); file != nullptr) {
    long long total = 0, resident = 0;
    if (std::fscanf(file, "%lld %lld", &total, &resident) == 2) out.resident_bytes = resident * ::sysconf(_SC_PAGESIZE);
    std::fclose(file);
  }
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) == 0) out.peak_bytes = std::int64_t{usage.ru_maxrss} * 1024;
  out.peak_bytes = std::max(out.peak_bytes, out.resident_bytes);
  return out;
}

}  // namespace base

namespace base {

std::vector<ProcessStat> all_processes() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc"), &::closedir);
  if (!folder) throw std::system_error(errno, std::generic_category(), "cannot open /proc");
  std::vector<ProcessStat> all;
  while (const dirent* entry = ::readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    std::int64_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    if (const auto stat = read_stat(pid)) all.push_back(*stat);
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
    char name[4096];
    const auto link = "/proc/" + std::to_string(pid) + "/fd/" + number;
    const auto size = ::readlink(link.c_str(), name, sizeof name);
    if (size > 0) all.emplace_back(name, static_cast<std::size_t>(size));
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

void kill_exactly(const ProcessStat& process) {
  const Fd handle(::pidfd_open(static_cast<pid_t>(process.pid), 0));
  if (!handle) return;
  const auto now = read_stat(process.pid);
  if (now && now->start_time == process.start_time) ::pidfd_send_signal(handle.get(), SIGKILL, nullptr, 0);
}

}  // namespace base
