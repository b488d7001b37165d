#include "agent/watch/stop_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

namespace agent::watch {

std::string to_text(const StopNotice& notice) {
  char deadline[40];
  std::snprintf(deadline, sizeof deadline, "%lld.%03d", static_cast<long long>(notice.deadline_ms / 1000),
                static_cast<int>(notice.deadline_ms % 1000));
  const auto at_step = notice.at_step ? R"(,"at_step":)" + std::to_string(*notice.at_step) : std::string();
  return R"({"why":")" + notice.why + R"(","save":)" + (notice.save ? "true" : "false") + at_step + R"(,"deadline":)" +
         deadline + "}\n";
}

// Not flushed to the disk: it is read on this machine, and soon.
bool write_stop_file(const std::filesystem::path& file, const StopNotice& notice) {
  const auto draft = file.string() + ".new";
  const auto text = to_text(notice);
  const int fd = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return false;
  const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(fd);
  return written && ::rename(draft.c_str(), file.c_str()) == 0;
}

bool looks_for(const std::filesystem::path& stop_file) {
  return ::access((stop_file.string() + kAsked).c_str(), F_OK) == 0;
}

}  // namespace agent::watch
