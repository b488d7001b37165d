#include "schema/tables/adamw.h"

#include <array>

namespace schema {
namespace {

constexpr auto kKeys = std::to_array<Key>({
    {.name = "train.weight_decay",
     .kind = Kind::kReal,
     .standard = "0.1",
     .low = 0,
     .high = 1000,
     .meaning = "AdamW's weight decay, applied to matrices only.",
     .assign = into<&AdamW::weight_decay>},
    {.name = "train.beta1",
     .kind = Kind::kReal,
     .standard = "0.9",
     .low = 0,
     .high = 0.999999,
     .meaning = "Decay rate of AdamW's first moment.",
     .assign = into<&AdamW::beta1>},
    {.name = "train.beta2",
     .kind = Kind::kReal,
     .standard = "0.95",
     .low = 0,
     .high = 0.999999,
     .meaning = "Decay rate of AdamW's second moment.",
     .assign = into<&AdamW::beta2>},
    {.name = "train.epsilon",
     .kind = Kind::kReal,
     .standard = "1e-8",
     .low = 0,
     .high = 0.1,
     .above_low = true,
     .meaning = "AdamW's epsilon.",
     .assign = into<&AdamW::epsilon>},
});

}  // namespace

const Table& adamw() {
  static const Table table{"adamw", kKeys};
  return table;
}

}  // namespace schema
