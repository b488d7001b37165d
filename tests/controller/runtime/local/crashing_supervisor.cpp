#include <signal.h>

#include <fstream>
#include <string>

#include "runtime/local/supervisor.h"

// muster-supervisor that kills itself at the step named in the file crash_at of the attempt's folder, or of the folder
// three above it (the data folder).
int main(int argc, char** argv) {
  runtime::local::SupervisorOptions options;
  options.started_by_executor = argc == 3;
  options.folder = argv[argc - 1];
  std::string crash_at;
  std::ifstream(options.folder / "../../../crash_at") >> crash_at;
  options.on_step = [&](std::string_view step) {
    if (step == crash_at) ::raise(SIGKILL);
  };
  return runtime::local::supervise(options);
}
