#include "base/process_stat.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <sstream>
#include <stdexcept>
#include <string>
#include <system_error>

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

}  // namespace base
