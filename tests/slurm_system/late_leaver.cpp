// Preloaded into a job's programs: the worker of rank 0 takes seconds to leave after its last word, as one does whose
// memory is being traced or whose folder is slow.
#include <errno.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace {

__attribute__((destructor)) void linger() {
  const char* rank = std::getenv("RANK");
  if (rank != nullptr && std::string_view(rank) == "0" &&
      std::string_view(program_invocation_short_name) == "muster-worker") {
    ::sleep(8);
  }
}

}  // namespace
