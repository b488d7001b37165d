#include "net/shares.h"

#include <algorithm>

namespace net {
namespace {

// The process itself gets a quarter, within these bounds. An idle musterd has about 25 open; a Slurm command takes 8.
constexpr std::uint64_t kFewestOwn = 40, kMostOwn = 2048;
// More descriptors would not help: memory runs out first.
constexpr std::uint64_t kMostDescriptors = 262'144;
constexpr std::uint64_t kFewestStrangers = 6, kMostStrangers = 512;
constexpr std::uint64_t kFewestPeople = 4, kMostPeople = 512;

}  // namespace

Shares shares_of(std::uint64_t descriptors) {
  const auto all = std::clamp(descriptors, kFewestDescriptors, kMostDescriptors);
  const auto left = all - std::clamp(all / 4, kFewestOwn, kMostOwn);
  const auto strangers = std::clamp(left / 16, kFewestStrangers, kMostStrangers);
  const auto people = std::clamp(left / 8, kFewestPeople, kMostPeople);
  return {strangers, people, left - 2 * strangers - people};
}

}  // namespace net
