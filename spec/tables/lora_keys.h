#pragma once

#include <string>

#include "spec/table.h"

namespace spec {

/// Low-rank adapters of a model whose own weights stay as they are.
struct Lora {
  std::int64_t rank = 0;  // 0: none; the whole model trains
  double alpha = 0;       // an adapter is multiplied by alpha / rank
  double dropout = 0;
  std::string layers;  // last parts of the names of linear layers, with spaces between
  bool merged = true;  // whether the export has the adapters added to the weights
};

/// The rows of Lora.
const Table& lora();

}  // namespace spec
