#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spec/table.h"

namespace spec {

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
