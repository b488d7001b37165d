#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

/// How long the texts of a training on single texts or pairs may be.
struct Sequence {
  std::int64_t sequence_length = 0;  // tokens, special ones included
};

/// The rows of Sequence.
const Table& sequence();

/// Data that `muster data prepare` has made, and how batches are made of data.
struct PreparedData {
  std::string prepared;             // the folder; empty: another source
  std::string tokenizer;            // a folder, a file or "bytes"; empty: that of model.pretrained
  std::int64_t bucket_batches = 0;  // total batches of samples of similar lengths; 0: no buckets
  std::int64_t loader_threads = 0;  // 0: batches are made by the training's own thread
  std::int64_t loader_ahead = 0;    // batches made ahead
};

/// Adds a contradiction if there is no data.prepared, for the tables of recipes that train on such a folder alone.
void want_prepared_data(const Values& values, std::vector<Conflict>& conflicts);

/// The rows of PreparedData.
const Table& prepared_data();

}  // namespace spec
