#pragma once

#include <string>

#include "schema/table.h"

namespace schema {

/// When a training is saved, and where.
struct Checkpoints {
  std::string folder;            // empty: chosen by who starts the training
  std::int64_t every_steps = 0;  // 0: only at the end and when asked to leave
  std::int64_t keep = 0;         // newest checkpoints that stay
};

/// The rows of Checkpoints. Commands have these keys, too.
const Table& checkpoints();

}  // namespace schema
