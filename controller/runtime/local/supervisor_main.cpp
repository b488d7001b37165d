#include <cstdio>
#include <cstring>

#include "runtime/local/supervisor.h"

// muster-supervisor <attempt folder>: see supervisor.h. People need it only to look at what a controller does.
int main(int argc, char** argv) {
  runtime::local::SupervisorOptions options;
  options.started_by_executor = argc == 3 && std::strcmp(argv[1], "--started-by-musterd") == 0;
  if (argc != 2 && !options.started_by_executor) {
    std::fprintf(stderr, "usage: muster-supervisor <attempt folder>\nmusterd starts it; people don't need to.\n");
    return 2;
  }
  options.folder = argv[argc - 1];
  return runtime::local::supervise(options);
}
