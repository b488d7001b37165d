#include "spec/tables/sequence.h"

#include <array>

#include "spec/limits.h"
#include "spec/tables/prepared_data.h"

namespace spec {
namespace {

constexpr auto kKeys = std::to_array<Key>({
    {.name = "data.sequence_length",
     .kind = Kind::kWhole,
     .standard = "128",
     .low = 2,
     .high = kMostSize,
     .unit = "tokens",
     .meaning = "The most tokens of a text, special ones included; longer texts are cut.",
     .assign = into<&Sequence::sequence_length>},
});

void check(const Values& values, std::uint64_t /*ranks*/, std::vector<Conflict>& conflicts) {
  want_prepared_data(values, conflicts);
}

}  // namespace

const Table& sequence() {
  static const Table table{"sequence", kKeys, nullptr, check};
  return table;
}

}  // namespace spec
