#include "spec/tables/prepared_data.h"

#include <array>

#include "spec/limits.h"

namespace spec {
namespace {

constexpr auto kKeys = std::to_array<Key>({
    {.name = "data.prepared",
     .kind = Kind::kPath,
     .meaning = "Folder that muster data prepare has written. Its splits train and validation are used, and the other "
                "keys that choose data have no effect.",
     .assign = into<&PreparedData::prepared>},
    {.name = "data.tokenizer",
     .meaning = "The tokenizer that the data must be made with: a folder, a file, or bytes. Without it, that of "
                "model.pretrained; without both, the data's own is taken, which is bytes for data.source.",
     .assign = into<&PreparedData::tokenizer>},
    {.name = "data.bucket_batches",
     .kind = Kind::kWhole,
     .standard = "0",
     .low = 0,
     .high = kMostCount,
     .unit = "batches",
     .meaning = "How many batches are sorted by length together, so that a batch has samples of similar lengths and "
                "little padding; 0: none.",
     .assign = into<&PreparedData::bucket_batches>},
    {.name = "data.loader_threads",
     .kind = Kind::kWhole,
     .standard = "1",
     .low = 0,
     .high = 64,
     .unit = "threads",
     .meaning = "Threads of each rank that make batches ahead; 0: the training makes them itself. Batches are equal.",
     .assign = into<&PreparedData::loader_threads>},
    {.name = "data.loader_ahead",
     .kind = Kind::kWhole,
     .standard = "2",
     .low = 1,
     .high = 1024,
     .unit = "batches",
     .meaning = "Micro-batches that these threads make ahead.",
     .assign = into<&PreparedData::loader_ahead>},
});

}  // namespace

void want_prepared_data(const Values& values, std::vector<Conflict>& conflicts) {
  if (!values.text("data.prepared").empty()) return;
  conflicts.push_back({"data.prepared",
                       "want the folder that muster data prepare has written, which this recipe trains on",
                       "add prepared = \"...\" to [data]",
                       {"train.recipe"}});
}

const Table& prepared_data() {
  static const Table table{"prepared_data", kKeys};
  return table;
}

}  // namespace spec
