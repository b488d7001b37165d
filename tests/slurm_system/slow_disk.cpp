// Preloaded into a job's programs: what a worker of attempt N flushes into a checkpoint does not reach the disk as long
// as the file SLOW_DISK-N lies there; SLOW_DISK-N-tried tells that one has tried.
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <string>

extern "C" int fsync(int fd) {
  const char* flag = std::getenv("SLOW_DISK");
  const char* attempt = std::getenv("MUSTER_ATTEMPT");
  if (flag != nullptr && attempt != nullptr && std::string(program_invocation_short_name) == "muster-worker") {
    char path[PATH_MAX] = "";
    const auto length = ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path - 1);
    const std::string file = length < 0 ? "" : std::string(path, static_cast<std::size_t>(length));
    const std::string slow = std::string(flag) + "-" + attempt;
    while (file.find("/checkpoints/") != std::string::npos && ::access(slow.c_str(), F_OK) == 0) {
      ::close(::open((slow + "-tried").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
      ::usleep(50'000);
    }
  }
  return static_cast<int>(::syscall(SYS_fsync, fd));
}
