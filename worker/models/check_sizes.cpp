#include "worker/models/check_sizes.h"

#include <stdexcept>
#include <string>

namespace worker {

void check_sizes(std::initializer_list<std::pair<const char*, std::int64_t>> sizes) {
  for (const auto& [key, value] : sizes) {
    if (value >= 1) continue;
    throw std::invalid_argument(std::string("model.") + key + " = " + std::to_string(value) +
                                ": want a whole number of at least 1");
  }
}

void check_no_conflict(const std::vector<spec::Conflict>& conflicts) {
  if (conflicts.empty()) return;
  const auto& first = conflicts.front();
  throw std::invalid_argument(first.key + ": " + first.want + "; " + first.remedy);
}

}  // namespace worker
