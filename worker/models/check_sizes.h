#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "spec/table.h"

namespace worker {

/// Throws std::invalid_argument for a size below 1. Names are those of rows, without "model.".
void check_sizes(std::initializer_list<std::pair<const char*, std::int64_t>> sizes);

/// Throws std::invalid_argument that tells the first contradiction.
void check_no_conflict(const std::vector<spec::Conflict>& conflicts);

}  // namespace worker
