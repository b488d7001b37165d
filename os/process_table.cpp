#include "os/process_table.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
extern "C" {  // glibc 2.36 forgot to say so in it
#include <sys/pidfd.h>
}

#include <cerrno>
#include <charconv>
#include <memory>
#include <string_view>
#include <system_error>

#include "os/fd.h"

namespace os {

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

}  // namespace os
