// The rows of adapters: what they refuse, and what they mean.
#include <gmock/gmock.h>

#include <string>
#include <utility>

#include "spec/recipes.h"
#include "spec/tables/text_recipe_keys.h"

namespace spec {
namespace {

std::string refused(const Values& given) {
  const auto tables = tables_of("causal_lm", "llama");
  Values values = given;
  fill_defaults(values, tables, 4);
  std::string all;
  for (const auto& conflict : conflicts_of(values, tables, 4))
    all += conflict.key + ": " + conflict.want + "; " + conflict.remedy + "\n";
  return all;
}

TEST(Lora, AQuantisedBaseNeedsAdaptersAndStaysWhole) {
  Values values;
  values.set("model.pretrained", std::string("/model"));
  EXPECT_EQ(refused(values), "");
  values.set("train.quantize_base", std::string("nf4"));
  EXPECT_EQ(refused(values),
            "train.quantize_base: want train.lora_rank above 0 with it, because what is quantised cannot train; give "
            "train.lora_rank, or leave it out\n");
  values.set("train.lora_rank", std::int64_t{8});
  EXPECT_EQ(refused(values), "");
  values.set("fsdp.reshard_to_ranks", std::int64_t{2});
  EXPECT_EQ(
      refused(values),
      "fsdp.reshard_to_ranks: want 0 with train.quantize_base; leave it out; what is gathered again for backward is "
      "small already\n");
  values.set("train.quantize_base", std::string("none"));
  EXPECT_EQ(refused(values), "");
}

TEST(Lora, FormatsAreThoseOfTheirWords) {
  for (const auto& [word, format] : {std::pair("none", BaseFormat::kNone), std::pair("nf4", BaseFormat::kNf4),
                                     std::pair("int8", BaseFormat::kInt8)}) {
    Values values;
    values.set("train.quantize_base", std::string(word));
    EXPECT_EQ(bind<Lora>(lora(), values).base_format, format) << word;
  }
}

}  // namespace
}  // namespace spec
