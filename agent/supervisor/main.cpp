#include <cstdio>
#include <string_view>

#include "agent/report/grpc_reports.h"
#include "agent/supervisor/supervisor.h"

// muster-supervisor <attempt folder>: see supervisor.h. People need it only to look at what a controller does.
int main(int argc, char** argv) {
  constexpr const char* kHelp =
      "usage: muster-supervisor FOLDER\n\nStarts the ranks of a local attempt, and stays with them until they have "
      "ended. musterd writes the folder and starts\nit; people don't need to.\n";
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (first == "--help" || first == "-h") {
    std::fputs(kHelp, stdout);
    return 0;
  }
  agent::supervisor::SupervisorOptions options;
  options.started_by_executor = argc == 3 && first == "--started-by-musterd";
  if ((argc != 2 || first.starts_with('-')) && !options.started_by_executor) {
    std::fputs(kHelp, stderr);
    return 2;
  }
  options.connect = agent::report::connect_by_grpc;
  options.folder = argv[argc - 1];
  return agent::supervisor::supervise(options);
}
