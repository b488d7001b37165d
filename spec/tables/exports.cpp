#include "spec/tables/exports.h"

#include <array>

namespace spec {
namespace {

constexpr auto kKeys = std::to_array<Key>({
    {.name = "train.export_folder",
     .kind = Kind::kPath,
     .meaning = "Folder that gets the trained model at the end, as from_pretrained() of transformers reads it. It must "
                "be absent, empty or an earlier export. Without it nothing is exported.",
     .assign = into<&Exports::folder>},
    {.name = "train.export_dtype",
     .kind = Kind::kChoice,
     .standard = "trained",
     .choices = "trained fp32 bf16 fp16",
     .meaning = "Number format of the exported weights; trained: that of train.precision.",
     .assign = into<&Exports::dtype>},
    {.name = "train.export_file_size",
     .kind = Kind::kSize,
     .standard = "5000000000B",
     .low = 1024,
     .high = 1099511627776,
     .meaning = "The most bytes of one exported file. A larger tensor has a file of its own.",
     .assign = into<&Exports::file_bytes>},
    {.name = "train.full_state_file",
     .kind = Kind::kPath,
     .meaning = "File that gets all weights of the trained model at the end, as load_model() of safetensors reads them "
                "into a PyTorch model. They are gathered in the memory of rank 0's host first, in fp32. Without it "
                "nothing is gathered.",
     .assign = into<&Exports::full_state_file>},
});

}  // namespace

const Table& exports() {
  static const Table table{"export", kKeys};
  return table;
}

}  // namespace spec
