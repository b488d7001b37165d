#pragma once

#include <string>

#include "spec/table.h"

namespace spec {

/// How text becomes rows: a stream cut into pieces, or whole documents beside each other.
enum class Packing { kChunks, kDocuments };

/// The text to train on.
struct TextData {
  std::string source;
  std::string path;                  // for source "folder"
  std::int64_t sequence_length = 0;  // tokens in a sample
  Packing packing = Packing::kChunks;
  double validation_fraction = 0;  // share of all samples, in [0, 1); 0: no validation
  std::int64_t max_bytes = 0;      // the most text that is read
  std::string cache_folder;        // empty: the worker's own
};

/// The rows of TextData.
const Table& text_data();

}  // namespace spec
