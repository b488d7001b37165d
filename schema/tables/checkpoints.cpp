#include "schema/tables/checkpoints.h"

#include <array>

#include "schema/limits.h"

namespace schema {
namespace {

constexpr auto kKeys = std::to_array<Key>({
    {.name = "checkpoint.folder",
     .kind = Kind::kPath,
     .derived = "the job's own, in the controller's data folder",
     .meaning = "Where checkpoints go.",
     .assign = into<&Checkpoints::folder>},
    {.name = "checkpoint.every_steps",
     .kind = Kind::kWhole,
     .standard = "100",
     .low = 0,
     .high = kMostCount,
     .unit = "steps",
     .meaning = "Steps between two checkpoints; 0: only at the end and when asked to leave.",
     .assign = into<&Checkpoints::every_steps>},
    {.name = "checkpoint.keep",
     .kind = Kind::kWhole,
     .standard = "3",
     .low = 1,
     .high = 1'000'000,
     .meaning = "So many of the newest checkpoints are kept.",
     .assign = into<&Checkpoints::keep>},
});

}  // namespace

const Table& checkpoints() {
  static const Table table{"checkpoint", kKeys};
  return table;
}

}  // namespace schema
