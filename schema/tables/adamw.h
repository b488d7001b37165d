#pragma once

#include "schema/table.h"

namespace schema {

/// Options of the optimizer AdamW (Loshchilov and Hutter, Decoupled Weight Decay Regularization).
struct AdamW {
  double weight_decay = 0;
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
};

/// The rows of AdamW.
const Table& adamw();

}  // namespace schema
