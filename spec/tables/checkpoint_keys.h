#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "spec/series.h"
#include "spec/table.h"
#include "spec/tables/training_keys.h"

namespace spec {

/// When and where a training saves checkpoints.
struct Checkpoints {
  std::string folder;            // empty: the starter of the training chooses
  std::int64_t every_steps = 0;  // 0: only at the end and when asked to save and leave
  std::int64_t keep = 0;         // how many of the newest checkpoints stay
  bool asynchronous = false;     // saves write beside the training
  std::string best;              // the series whose best step is also kept; empty: none
};

/// The rows of Checkpoints. Jobs that run a command have these keys, too.
const Table& checkpoints();

/// Why a training that reports `series` cannot keep a best checkpoint as "checkpoint.best" asks, or has nothing that
/// "train.early_stop" could watch. Empty if neither key is given. `values` hold the keys of the training and of its
/// checkpoints, defaults included.
std::vector<Conflict> conflicts_of_best(std::span<const Series> series, const Values& values);

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
