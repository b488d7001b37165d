#pragma once

#include <string>

#include "schema/table.h"

namespace schema {

enum class ExportedDtype { kTrained, kFp32, kBf16, kFp16 };

/// The model that a training writes at its end for other programs.
struct Exports {
  std::string folder;                             // empty: none is written
  ExportedDtype dtype = ExportedDtype::kTrained;  // kTrained: train.precision
  std::int64_t file_bytes = 0;                    // the most bytes of one file
  std::string full_state_file;                    // empty: none is written
};

/// The rows of Exports.
const Table& exports();

}  // namespace schema
