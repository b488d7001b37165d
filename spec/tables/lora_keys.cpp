#include "spec/tables/lora_keys.h"

#include <array>

namespace spec {
namespace {

constexpr std::string_view kRank = "train.lora_rank";

constexpr auto kKeys = std::to_array<Key>({
    row::whole(kRank, "0", {0, 65'536},
               "Rank of the low-rank adapters (LoRA) that train while the model's own weights stay; 0: the whole model "
               "trains. Needs model.pretrained. Checkpoints hold the adapters alone.",
               into<&Lora::rank>),
    row::real("train.lora_alpha", derived("2 x lora_rank"), above(0, 1e6),
              "An adapter's result is multiplied by lora_alpha / lora_rank.", into<&Lora::alpha>),
    row::real("train.lora_dropout", derived("0 with adapters"), {0, 0.99},
              "Share of an adapter's inputs that training sets to zero.", into<&Lora::dropout>),
    row::text("train.lora_layers", derived("those that PEFT has for the family"),
              "Linear layers that get an adapter: the last parts of their names, with spaces between.",
              into<&Lora::layers>),
    row::flag("train.export_merged", derived("true with adapters"),
              "Whether the export is a whole model with the adapters added to its weights. false: the adapters alone, "
              "as PEFT reads them.",
              into<&Lora::merged>),
});

constexpr auto kWithRank = std::to_array<std::string_view>(
    {"train.lora_alpha", "train.lora_dropout", "train.lora_layers", "train.export_merged"});

void derive(Values& values, std::uint64_t /*ranks*/) {
  if (values.whole(kRank) == 0) return;
  const auto set_absent = [&](std::string_view key, Value value) {
    if (!values.has(key)) values.set(key, std::move(value));
  };
  set_absent("train.lora_alpha", 2.0 * static_cast<double>(values.whole(kRank)));
  set_absent("train.lora_dropout", 0.0);
  set_absent("train.export_merged", true);
}

void check(const Values& values, std::uint64_t /*ranks*/, std::vector<Conflict>& conflicts) {
  if (values.whole(kRank) == 0) {
    for (const auto key : kWithRank) {
      if (!values.has(key)) continue;
      conflicts.push_back(
          {std::string(key), "want train.lora_rank above 0 with it", "leave it out", {std::string(kRank)}});
    }
  } else if (values.text("model.pretrained").empty()) {
    conflicts.push_back({std::string(kRank),
                         "want model.pretrained with it, because adapters change a model that is trained already",
                         "give model.pretrained, or leave it out",
                         {"model.pretrained"}});
  }
}

}  // namespace

const Table& lora() {
  static const Table table{"lora", kKeys, derive, check};
  return table;
}

}  // namespace spec
