#pragma once

#include "spec/table.h"

namespace spec {

enum class OptimizerKind { kAdamW, kAdam, kSgd, kLion, kAdafactor, kMuon };
enum class MomentsFormat { kFp32, kBf16, kInt8 };
enum class WeightDecaySchedule { kConstant, kCosine, kLinear };

/// Options of the optimizer. Members that the kind does not have are 0.
struct Optimizer {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double weight_decay = 0;
  double final_weight_decay = 0;
  WeightDecaySchedule weight_decay_schedule = WeightDecaySchedule::kConstant;
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
  MomentsFormat moments = MomentsFormat::kFp32;
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;
  double layer_decay = 1;
  double average_decay = 0;
};

/// The rows of Optimizer.
const Table& optimizer();

}  // namespace spec
