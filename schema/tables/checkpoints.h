#pragma once

#include <span>
#include <string>
#include <vector>

#include "schema/series.h"
#include "schema/table.h"

namespace schema {

/// When a training is saved, and where.
struct Checkpoints {
  std::string folder;            // empty: chosen by who starts the training
  std::int64_t every_steps = 0;  // 0: only at the end and when asked to leave
  std::int64_t keep = 0;         // newest checkpoints that stay
  std::string best;              // the series whose best step is kept besides; empty: none
};

/// The rows of Checkpoints. Commands have these keys, too.
const Table& checkpoints();

/// Why a training that reports `series` cannot keep a best checkpoint as "checkpoint.best" asks. Empty: it can, or the
/// key is not given. `values` hold the keys of the training and of its checkpoints, defaults included.
std::vector<Conflict> conflicts_of_best(std::span<const Series> series, const Values& values);

}  // namespace schema
