// muster-worker and muster-infer as they are installed: becomes the build of itself for the LibTorch beside it.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "base/command.h"
#include "base/usage_error.h"
#include "spec/exit_codes.h"
#include "worker/starter/library_path.h"
#include "worker/starter/torch_beside.h"

int main(int, char** argv) {
  const auto program = base::own_program();
  std::string why;
  try {
    if (program.empty()) throw base::UsageError("cannot read /proc/self/exe; mount /proc");
    const char* home = std::getenv("HOME");
    const auto build = starter::find_build(program, home == nullptr ? "" : home);
    starter::lend_library_path(build.libraries);
    ::execv(build.program.c_str(), argv);
    why = "cannot start " + build.program.native() + ": " + std::strerror(errno) +
          "; install the package of the worker again";
  } catch (const base::UsageError& error) {
    why = error.what();
  }
  std::fprintf(stderr, "%s: error: %s\n", program_invocation_short_name, why.c_str());
  return spec::kExitNeverRequeue;
}
