// Goal: a key/value cache, rows of unequal length and ranks with unequal ends change nothing of what a model generates.
// Method: small decoders of each family against a loop that reads the whole text anew for each token; a toy model with
// an encoder; sharded ranks as threads.
#include "worker/generate/decode.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "fsdp/engine/fully_shard.h"
#include "fsdp/text/json.h"
#include "tests/fsdp/ranks.h"
#include "tests/worker/small_llama.h"
#include "tests/worker/temporary_folder.h"
#include "worker/models/family.h"

namespace worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::message_of;

/// Values of a size that matters.
void draw_values(const Family& of, const spec::Values& values, CausalModel& model) {
  fsdp::initialize(model, 1, [&](const std::string& name, const at::Tensor& into, at::Generator& random) {
    of.draw(values, name, into, random);
  });
}

spec::Values small_values(const Family& of) {
  return of.read(fsdp::Json::parse(R"({"vocab_size": 300, "hidden_size": 16, "intermediate_size": 24,
      "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 32, "initializer_range": 0.5})"));
}

/// The new tokens of one text, without a cache.
TokenIds without_cache(const CausalModel& model, TokenIds text, std::int64_t count) {
  const at::NoGradGuard no_grad;
  TokenIds out;
  for (std::int64_t i = 0; i < count; ++i) {
    const at::Tensor logits = model.forward(at::tensor(text).unsqueeze(0));
    out.push_back(logits.select(1, logits.size(1) - 1).argmax().item<std::int64_t>());
    text.push_back(out.back());
  }
  return out;
}

const std::vector<TokenIds> kPrompts{{5, 17, 200, 3, 9}, {44, 2}, {7}, {1, 2, 3, 4, 5, 6, 7, 8, 9}};

class Generate : public ::testing::TestWithParam<const char*> {
 protected:
  std::shared_ptr<CausalModel> model() const {
    const Family& of = family(GetParam());
    const auto values = small_values(of);
    auto made = of.make_causal(values);
    draw_values(of, values, *made);
    return made;
  }
};

TEST_P(Generate, RowsOfUnequalLengthGetWhatEachGetsAloneWithoutACache) {
  const auto decoder = model();
  const auto got = generate(*decoder, kPrompts, {.max_new_tokens = 12});
  ASSERT_EQ(got.size(), kPrompts.size());
  for (std::size_t row = 0; row < got.size(); ++row)
    EXPECT_EQ(got[row], without_cache(*decoder, kPrompts[row], 12)) << "row " << row;
}

TEST_P(Generate, ATextIsOverWithAnEndOrWhenTheListenerSaysSo) {
  const auto decoder = model();
  const auto whole = without_cache(*decoder, kPrompts[0], 10);
  const auto first_of = [&](std::int64_t token) { return std::ranges::find(whole, token) - whole.begin() + 1; };
  const auto until = [&](std::int64_t count) { return TokenIds(whole.begin(), whole.begin() + count); };
  const std::int64_t end = whole[4];
  EXPECT_EQ(generate(*decoder, kPrompts, {.max_new_tokens = 10, .ends = {999, end}})[0], until(first_of(end)));
  std::vector<std::size_t> heard;
  const auto stopped =
      generate(*decoder, kPrompts, {.max_new_tokens = 10}, {}, done_alone, [&](std::size_t row, std::int64_t) {
        heard.push_back(row);
        return row != 0 || std::ranges::count(heard, 0U) < 3;
      });
  EXPECT_EQ(stopped[0], until(3));
  EXPECT_EQ(stopped[1].size(), 10U);
  EXPECT_EQ(heard.size(), 3U + 3 * 10U);
}

TEST_P(Generate, ADrawDependsOnSeedRowAndPlaceAlone) {
  const auto decoder = model();
  const Sampling sampling{.temperature = 1.3, .top_p = 0.95, .max_new_tokens = 8, .seed = 5};
  const auto all = generate(*decoder, kPrompts, sampling);
  EXPECT_EQ(generate(*decoder, kPrompts, sampling), all);
  EXPECT_EQ(generate(*decoder, {kPrompts[0], kPrompts[1]}, sampling)[1], all[1]);
  auto other = sampling;
  other.first_row = 2;
  const auto last_two = generate(*decoder, {kPrompts[2], kPrompts[3]}, other);
  EXPECT_EQ(last_two[0], all[2]);
  EXPECT_EQ(last_two[1], all[3]);
  other = sampling;
  other.seed = 6;
  EXPECT_NE(generate(*decoder, kPrompts, other), all);
  const auto twice = generate(*decoder, {kPrompts[0], kPrompts[0]}, sampling);
  EXPECT_NE(twice[0], twice[1]);
}

TEST_P(Generate, ReadsAsManyPositionsAsTheModelHasAndNoMore) {
  const auto decoder = model();
  const std::vector<TokenIds> prompt{TokenIds(20, 1)};
  EXPECT_EQ(generate(*decoder, prompt, {.max_new_tokens = 13})[0].size(), 13U);  // the last token is not read
  EXPECT_THROW(generate(*decoder, prompt, {.max_new_tokens = 14}), c10::Error);
}

TEST_P(Generate, LeavesTheModeOfTheModuleAsItWas) {
  const auto decoder = model();
  decoder->train();
  const auto fails = [&] {
    generate(*decoder, kPrompts, {}, {}, done_alone, [&](auto, auto) -> bool {
      EXPECT_FALSE(decoder->is_training());
      throw std::runtime_error("stop");
    });
  };
  EXPECT_THROW(fails(), std::runtime_error);
  EXPECT_TRUE(decoder->is_training());
  decoder->eval();
  generate(*decoder, kPrompts, {.max_new_tokens = 1});
  EXPECT_FALSE(decoder->is_training());
}

TEST_P(Generate, NamesAPromptWithoutATokenAndTakesNone) {
  const auto decoder = model();
  EXPECT_THAT(message_of<std::invalid_argument>([&] { generate(*decoder, {{1}, {}}, {}); }), HasSubstr("prompt 1"));
  EXPECT_THAT(generate(*decoder, {}, {}), IsEmpty());
  EXPECT_THAT(generate(*decoder, {{1}}, {.max_new_tokens = 0}), ElementsAre(TokenIds()));
}

// Ranks have prompts of other lengths and numbers, and their texts end at other places. One rank has none.
TEST_P(Generate, RanksWithUnequalEndsWaitForEachOther) {
  const Family& of = family(GetParam());
  const auto values = small_values(of);
  const auto alone = model();
  const std::vector<std::vector<TokenIds>> prompts{{kPrompts[0], kPrompts[3]}, {kPrompts[2]}, {}};
  std::vector<std::vector<TokenIds>> got(prompts.size());
  std::vector<int> calls(prompts.size());
  run_ranks(3, [&](fsdp::DeviceMesh& mesh) {
    const auto rank = static_cast<std::size_t>(mesh.rank());
    const auto decoder = model();
    fsdp::ShardedModel sharded(decoder, mesh);
    const auto shard = [&](const std::shared_ptr<torch::nn::Module>& module, CallWrapper& wrapper, bool counts) {
      wrapper = [unit = sharded.fully_shard(module), &calls, rank, counts](Tensors inputs, const Forward& forward) {
        if (counts) ++calls[rank];
        return unit->run_list(std::move(inputs), forward);
      };
    };
    for (const auto& block : decoder->blocks()) shard(block, block->wrapper, false);
    shard(decoder, decoder->wrapper, true);
    const AllDone all_done = [&](bool mine) {
      return mesh.control().all_reduce(mine ? 0.0 : 1.0, fsdp::Reduction::kMax) == 0;
    };
    const std::int64_t most = mesh.rank() == 1 ? 3 : 9;
    got[rank] = generate(*decoder, prompts[rank], {.max_new_tokens = most}, {}, all_done);
  });
  EXPECT_THAT(got[0], ElementsAre(without_cache(*alone, kPrompts[0], 9), without_cache(*alone, kPrompts[3], 9)));
  EXPECT_THAT(got[1], ElementsAre(without_cache(*alone, kPrompts[2], 3)));
  EXPECT_THAT(got[2], IsEmpty());
  // The longest row reads its prompt from the fifth token on, one a call.
  EXPECT_THAT(calls, ::testing::Each(9 + 9 - 5));
}

INSTANTIATE_TEST_SUITE_P(Families, Generate, ::testing::Values("llama", "gpt_neox"),
                         [](const auto& one) { return std::string(one.param); });

/// Answers a text of n tokens by the tokens 10 + n, 11 + n, .. and then 1, as often as the sum of the text says. It
/// notes how it is called.
class Counting : public EncoderDecoder {
 public:
  struct Calls {
    int encoded = 0, next = 0, idle = 0;
  };

  torch::nn::Module& module() override { return module_; }
  std::int64_t first_token() const override { return 0; }
  std::int64_t padding() const override { return 7; }

  std::unique_ptr<RowReader> encode(const at::Tensor& ids, const at::Tensor& mask, std::int64_t capacity) override {
    ++calls.encoded;
    EXPECT_FALSE(module_.is_training());
    EXPECT_FALSE(at::GradMode::is_enabled());
    EXPECT_TRUE(ids.masked_select(mask.logical_not()).eq(7).all().item<bool>());
    return std::make_unique<Reader>(mask.sum(1), (ids * mask).sum(1), capacity, calls);
  }

  Calls calls;

 private:
  class Reader : public RowReader {
   public:
    Reader(at::Tensor lengths, at::Tensor sums, std::int64_t capacity, Calls& calls)
        : lengths_(std::move(lengths)), sums_(std::move(sums)), capacity_(capacity), calls_(calls) {}

    at::Tensor next(const at::Tensor& ids) override {
      EXPECT_EQ(ids.sizes(), (at::IntArrayRef{lengths_.size(0), 1}));
      if (calls_.next == 0) {
        EXPECT_TRUE(ids.eq(0).all().item<bool>()) << "texts begin with the first token";
      }
      const std::int64_t place = calls_.next++;
      EXPECT_LT(place, capacity_);
      at::Tensor logits = at::zeros({lengths_.size(0), 100});
      for (std::int64_t row = 0; row < lengths_.size(0); ++row) {
        const bool is_over = place >= sums_[row].item<std::int64_t>();
        logits[row][is_over ? 1 : 10 + lengths_[row].item<std::int64_t>() + place] = 5;
      }
      return logits;
    }
    void idle() override { ++calls_.idle; }

   private:
    const at::Tensor lengths_, sums_;
    const std::int64_t capacity_;
    Calls& calls_;
  };

  torch::nn::Module module_;
};

TEST(GenerateFromAnEncoder, EncodesOnceAndAnswersEachRow) {
  Counting model;
  const auto got = generate(model, {{1, 1}, {1}, {0, 0, 4}}, {.max_new_tokens = 4, .ends = {1}});
  EXPECT_THAT(got, ElementsAre(TokenIds{12, 13, 1}, TokenIds{11, 1}, TokenIds{13, 14, 15, 16}));
  EXPECT_EQ(model.calls.encoded, 1);
  EXPECT_EQ(model.calls.next, 4);
  EXPECT_EQ(model.calls.idle, 0);
  EXPECT_TRUE(model.module().is_training());
}

TEST(GenerateFromAnEncoder, ARankThatIsDoneGoesOnWithCallsThatChangeNothing) {
  Counting model, without_prompts;
  int asked = 0;
  const AllDone others = [&](bool mine) { return ++asked > 6 && mine; };  // other ranks need six calls
  EXPECT_THAT(generate(model, {{1}}, {.max_new_tokens = 4, .ends = {1}}, others), ElementsAre(TokenIds{11, 1}));
  EXPECT_EQ(model.calls.next, 2);
  EXPECT_EQ(model.calls.idle, 4);
  asked = 0;
  EXPECT_THAT(generate(without_prompts, {}, {.max_new_tokens = 4}, others), IsEmpty());
  EXPECT_EQ(without_prompts.calls.encoded, 1) << "the other ranks encode";
  EXPECT_EQ(without_prompts.calls.idle, 6);
}

}  // namespace
}  // namespace worker
