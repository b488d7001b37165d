#pragma once

#include <string>
#include <string_view>

#include "spec/table.h"

namespace spec {

enum class LearningRateSchedule { kCosine, kLinear, kConstant, kStep };
enum class Precision { kFp32, kBf16, kFp16 };

/// Options of the training loop, the same for every recipe.
struct Training {
  std::int64_t steps = 0;             // 0: what `epochs` needs, which the ranks know
  double epochs = 0;                  // passes over the training data; 0: `steps` counts
  std::int64_t batch_size = 0;        // samples in a step, over all ranks and micro-batches
  std::int64_t micro_batch_size = 0;  // samples that a rank computes at once
  double learning_rate = 0;
  double min_learning_rate = 0;
  std::int64_t warmup_steps = 0;
  LearningRateSchedule schedule = LearningRateSchedule::kCosine;
  std::int64_t step_size = 0;  // of kStep: steps between two drops
  double gamma = 0;            // of kStep: factor of a drop
  double clip_norm = 0;        // 0: no clipping
  std::string clip_norm_type;  // see norm_order()
  std::int64_t seed = 0;
  Precision precision = Precision::kFp32;
  bool deterministic = false;               // equal runs on GPUs have equal bits
  bool cuda_graph = false;                  // a GPU replays each step from a graph
  std::int64_t validation_every_steps = 0;  // 0: never
  double validation_every_epochs = 0;       // 0: never
  std::int64_t validation_batches = 0;      // the most batches in a validation, over all ranks
  std::int64_t early_stop = 0;              // evaluations in a row without a better value that end the run; 0: never
  double early_stop_least = 0;              // by how much a value must be better to count
  std::string log_folder;                   // of JSON lines and TensorBoard's event files; empty: none
  std::string frozen;                       // beginnings of names of parameters that do not train, with spaces between
  std::int64_t max_skipped_steps = 0;       // steps in a row whose gradients are not finite; one more ends the run
  std::int64_t trace_step = 0;              // the first that is recorded, from 1; 0: none
  std::int64_t trace_steps = 0;             // how many are recorded
  std::int64_t step_delay_ms = 0;           // delay added to each step, for demonstrations and tests
};

/// The order of a norm, as train.clip_norm_type has it: a number above 0, or infinity for "inf". 0 for any other text.
double norm_order(std::string_view text);

/// The rows of Training.
const Table& training();

}  // namespace spec
