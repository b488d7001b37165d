#include "worker/starter/library_path.h"

#include <cstdlib>
#include <string>

namespace starter {
namespace {

constexpr const char* kPath = "LD_LIBRARY_PATH";
constexpr const char* kOuter = "MUSTER_OUTER_LIBRARY_PATH";  // the caller's, while ours is lent; empty: none

}  // namespace

void lend_library_path(const std::string& folders) {
  const char* path = std::getenv(kPath);
  const std::string outer = path == nullptr ? "" : path;
  ::setenv(kOuter, outer.c_str(), 1);
  ::setenv(kPath, (folders + (outer.empty() ? "" : ":" + outer)).c_str(), 1);
}

void take_back_library_path() {
  const char* outer = std::getenv(kOuter);
  if (outer == nullptr) return;
  if (*outer == '\0') {
    ::unsetenv(kPath);
  } else {
    ::setenv(kPath, outer, 1);
  }
  ::unsetenv(kOuter);
}

}  // namespace starter
