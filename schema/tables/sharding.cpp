#include "schema/tables/sharding.h"

#include <array>

namespace schema {
namespace {

constexpr auto kKeys = std::to_array<Key>({
    {.name = "fsdp.reshard_after_forward",
     .kind = Kind::kFlag,
     .standard = "true",
     .meaning = "Whether to free a unit's gathered weights between forward and backward: less memory, more traffic.",
     .assign = into<&Sharding::reshard_after_forward>},
    {.name = "fsdp.prefetch",
     .kind = Kind::kFlag,
     .standard = "true",
     .meaning = "Whether to gather the next unit while the current one computes.",
     .assign = into<&Sharding::prefetch>},
});

}  // namespace

const Table& sharding() {
  static const Table table{"fsdp", kKeys};
  return table;
}

}  // namespace schema
