#include "executors/node_fitness.h"

namespace executors {
namespace {

std::string telling(const std::string& check, std::string_view whose) {
  return "trap 'muster_code=$?; if [ $muster_code != 0 ]; then echo \"" + std::string(kUnfitMark) +
         "${SLURMD_NODENAME:-$(uname -n)}" + std::string(whose) + " with exit code $muster_code\" >&2; fi' EXIT\n" +
         check;
}

}  // namespace

std::string telling_check(const std::string& check) {
  return telling(check, {});
}

// The check that goes before it may be the partition's, with a trap of its own: from here on this one counts.
std::string own_check(const std::string& check) {
  return check.empty() ? std::string() : telling(check, kOwnCheckMark);
}

}  // namespace executors
