#pragma once

#include <string>

#include "schema/table.h"

namespace schema {

/// Which text to learn from.
struct TextData {
  std::string source;
  std::string path;                  // of source "folder"
  std::int64_t sequence_length = 0;  // tokens a sample
  double validation_fraction = 0;    // of all samples, in [0, 1); 0: no validation
  std::int64_t max_bytes = 0;        // of text
  std::string cache_folder;          // empty: the worker's own
};

/// The rows of TextData.
const Table& text_data();

}  // namespace schema
