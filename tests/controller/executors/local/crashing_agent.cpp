#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "agent/program/agent.h"
#include "agent/program/controller_link.h"

namespace {
std::filesystem::path data_folder;
}

/// Takes as long as the file slow_disk lies in the data folder, where slow_disk_waits tells that it waits, and flushes
/// has a line for each that is done.
extern "C" int fdatasync(int file) {
  while (std::filesystem::exists(data_folder / "slow_disk")) {
    std::ofstream(data_folder / "slow_disk_waits");
    ::usleep(5'000);
  }
  const auto result = ::syscall(SYS_fdatasync, file);
  std::ofstream(data_folder / "flushes", std::ios::app) << "done\n";
  return static_cast<int>(result);
}

/// Does not come back as long as the file stuck_disk lies in the data folder.
extern "C" ssize_t pwrite(int file, const void* bytes, size_t count, off_t offset) {
  while (std::filesystem::exists(data_folder / "stuck_disk")) {
    std::ofstream(data_folder / "stuck_disk_waits");
    ::usleep(5'000);
  }
  return ::syscall(SYS_pwrite64, file, bytes, count, offset);
}

// muster-agent that kills itself at the step named in the file crash_at of the data folder, or stops itself at the one
// named in stop_at.
int main(int argc, char** argv) {
  const std::filesystem::path folder = argc > 2 ? argv[2] : "";  // after --local
  data_folder = folder / "../../..";
  std::string crash_at, stop_at;
  std::ifstream(data_folder / "crash_at") >> crash_at;
  std::ifstream(data_folder / "stop_at") >> stop_at;
  return agent::program::start_locally({.folder = folder,
                                        .started_by_executor = argc == 4,
                                        .connect = agent::program::link_by_grpc,
                                        .change = [crash_at, stop_at](agent::program::AgentSetup& setup) {
                                          // SIGKILL ends nothing as long as the file stuck_process lies there.
                                          setup.ending.children = [](std::chrono::milliseconds patience) {
                                            if (!std::filesystem::exists(data_folder / "stuck_process"))
                                              return agent::process::end_children(patience);
                                            return std::string("process 12 (stuck)");
                                          };
                                          setup.on_step = [crash_at, stop_at](std::string_view step) {
                                            if (step == crash_at) ::raise(SIGKILL);
                                            if (step == stop_at) {
                                              std::ofstream(data_folder / "stopped") << ::getpid() << "\n";
                                              ::raise(SIGSTOP);
                                            }
                                          };
                                        }});
}
