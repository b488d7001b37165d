#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "spec/table.h"
#include "spec/tables/training.h"

namespace spec {

/// The model that a training writes at its end for other programs.
struct Exports {
  std::string folder;              // empty: none is written
  std::optional<Precision> dtype;  // none: train.precision
  std::int64_t file_bytes = 0;     // the most bytes of one file
  std::string full_state_file;     // empty: none is written
};

/// The rows of Exports.
const Table& exports();

}  // namespace spec
