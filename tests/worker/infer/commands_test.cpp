// Goal: people and programs read what commands print. Method: a small Llama of the byte vocabulary.
#include "worker/infer/commands.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "base/usage_error.h"
#include "data/tokenizers/tokenizer.h"
#include "tests/worker/infer/small_models.h"
#include "worker/infer/infer_model.h"

namespace infer::testing {
namespace {

using fsdp::Json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<Json> json_lines(const std::string& text) {
  std::vector<Json> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(Json::parse(line));
  return out;
}

std::string decoded(const worker::TokenIds& ids) {
  const std::vector<std::uint32_t> narrow(ids.begin(), ids.end());
  return data::tokenizers::byte_tokenizer()->decode(narrow, true);
}

class InferCommands : public ::testing::Test {
 protected:
  void SetUp() override { write_model(folder_ / "model", small_config(), tensors_of(*model_)); }

  Options options(Command command) const {
    return {.command = command, .model = folder_ / "model", .device = "cpu", .max_new_tokens = 9};
  }

  const test::TemporaryFolder folder_;
  const std::shared_ptr<worker::CausalModel> model_ = drawn(small_config());
};

TEST_F(InferCommands, GenerateContinuesATextAndSaysWhichModel) {
  const auto done = printed(options(Command::kGenerate), {"abc"});
  EXPECT_EQ(done.out, data::tokenizers::byte_tokenizer()->decode(
                          [&] {
                            auto ids = data::tokenizers::byte_tokenizer()->encode("abc", false);
                            for (const auto id : continued(*model_, "abc", 9))
                              ids.push_back(static_cast<std::uint32_t>(id));
                            return ids;
                          }(),
                          true) +
                          "\n");
  EXPECT_THAT(done.notes, AllOf(StartsWith("muster-infer: llama of "), HasSubstr("fp32")));
}

TEST_F(InferCommands, ManyTextsGiveWhatEachGivesAlone) {
  auto asked = options(Command::kGenerate);
  asked.batch = 2;
  asked.json = true;
  const std::vector<std::string> texts{"abc", "a longer text", "x", "\xFFz", ""};
  const auto lines = json_lines(printed(asked, texts).out);
  ASSERT_EQ(lines.size(), texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto want = continued(*model_, i == 4 ? std::string() : texts[i], i == 4 ? 0 : 9);
    if (i != 4) {
      EXPECT_EQ(lines[i].at("tokens"), Json(Json::Array(want.begin(), want.end())));
      EXPECT_EQ(lines[i].at("ended").as_bool(), want.back() == 256);
    }
  }
  EXPECT_EQ(lines[0].at("prompt").as_string(), "abc");
  EXPECT_EQ(lines[0].at("text").as_string(), decoded(continued(*model_, "abc", 9)));
  EXPECT_EQ(lines[3].at("prompt").as_string(), "\uFFFDz");
}

TEST_F(InferCommands, DrawsAreTheSameForASeedAndOtherForEachText) {
  auto asked = options(Command::kGenerate);
  asked.json = true;
  asked.temperature = 2;
  asked.batch = 1;
  const auto lines = json_lines(printed(asked, {"abc", "abc"}).out);
  EXPECT_NE(lines[0].at("tokens"), lines[1].at("tokens"));
  EXPECT_EQ(json_lines(printed(asked, {"abc", "abc"}).out), lines);
  asked.batch = 2;
  EXPECT_EQ(json_lines(printed(asked, {"abc", "abc"}).out), lines);
  asked.seed = 5;
  EXPECT_NE(json_lines(printed(asked, {"abc", "abc"}).out), lines);
}

TEST_F(InferCommands, GenerateStopsWhereTheModelHasNoMorePositions) {
  auto asked = options(Command::kGenerate);
  asked.json = true;
  asked.temperature = 1;
  const auto done = printed(asked, {std::string(45, 'a')});
  EXPECT_LE(json_lines(done.out)[0].at("tokens").size(), 4U);
  EXPECT_THAT(done.notes, HasSubstr("at most 4 new tokens, because the model takes 48"));
  try {
    printed(asked, {std::string(60, 'a')});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const base::UsageError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("has 60 tokens, and the model takes 48"), HasSubstr("a shorter one")));
  }
}

TEST_F(InferCommands, GenerateRefusesWhatWouldChooseOtherTokens) {
  const auto refusal = [&] {
    try {
      return printed(options(Command::kGenerate), {"abc"}).out;
    } catch (const base::UsageError& error) {
      return std::string(error.what());
    }
  };
  const std::string plain = refusal();
  test::write_file(folder_ / "model/generation_config.json",
                   R"({"do_sample": true, "temperature": 0.6, "top_p": 0.9})");
  EXPECT_EQ(refusal(), plain) << "the options say how text is drawn";
  test::write_file(folder_ / "model/generation_config.json", R"({"repetition_penalty": 1.3})");
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("generation_config.json has repetition_penalty = 1.3, and muster generate does"),
                    HasSubstr("remove the member to get the text without it")));
  EXPECT_NO_THROW(printed(options(Command::kEmbed), {"abc"})) << "vectors are made without it";
  std::filesystem::remove(folder_ / "model/generation_config.json");
  Json config = small_config();
  config["repetition_penalty"] = 1.3;
  write_model(folder_ / "model", config, tensors_of(*model_));
  EXPECT_THAT(refusal(), HasSubstr("config.json has repetition_penalty = 1.3"));
  test::write_file(folder_ / "model/generation_config.json", R"({"_from_model_config": true})");
  EXPECT_THAT(refusal(), HasSubstr("config.json has repetition_penalty = 1.3")) << "transformers 4 reads both";
  test::write_file(folder_ / "model/generation_config.json", R"({"temperature": 0.6})");
  EXPECT_EQ(refusal(), plain) << "no version reads the member of config.json";
  std::filesystem::remove(folder_ / "model/generation_config.json");
  config["repetition_penalty"] = 1.0;
  write_model(folder_ / "model", config, tensors_of(*model_));
  EXPECT_EQ(refusal(), plain);
}

TEST_F(InferCommands, ATiedModelWithAnotherHeadInItsFileIsRefused) {
  Json config = small_config();
  config["tie_word_embeddings"] = true;
  const auto tied = drawn(config);
  auto tensors = tensors_of(*tied);
  const auto table = std::ranges::find(tensors, "model.embed_tokens.weight", &Tensors::value_type::first)->second;
  tensors.emplace_back("lm_head.weight", table.clone());
  write_model(folder_ / "model", config, tensors);
  EXPECT_NO_THROW(printed(options(Command::kGenerate), {"abc"}));
  tensors.back().second = table + 1;
  write_model(folder_ / "model", config, tensors);
  try {
    printed(options(Command::kGenerate), {"abc"});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const base::UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("lm_head.weight has other values than model.embed_tokens.weight"));
  }
}

TEST_F(InferCommands, EmbedGivesTheMeanOfATextsVectors) {
  auto asked = options(Command::kEmbed);
  asked.json = true;
  const std::vector<std::string> texts{"ab", "a longer one", "c"};
  const auto lines = json_lines(printed(asked, texts).out);
  const auto vectors_of = [&](const std::string& pool) {
    auto with = asked;
    with.pool = pool;
    with.to = folder_ / (pool + ".safetensors");
    EXPECT_THAT(printed(with, texts).notes, HasSubstr("3 vectors are in"));
    return fsdp::SafetensorsReader(with.to).tensor("embeddings").clone();
  };
  const at::NoGradGuard no_grad;
  const at::Tensor mean = vectors_of("mean"), last = vectors_of("last"), cls = vectors_of("cls");
  for (std::size_t i = 0; i < texts.size(); ++i) {
    worker::TokenIds ids;
    for (const char c : texts[i]) ids.push_back(c);
    const at::Tensor states = model_->hidden_states(at::tensor(ids).unsqueeze(0))[0];
    const auto row = static_cast<std::int64_t>(i);
    EXPECT_TRUE(at::allclose(mean[row], states.mean(0), 1e-4, 1e-5)) << texts[i];
    EXPECT_TRUE(at::allclose(last[row], states[-1], 1e-4, 1e-5)) << texts[i];
    EXPECT_TRUE(at::allclose(cls[row], states[0], 1e-4, 1e-5)) << texts[i];
    EXPECT_EQ(lines[i].at("text").as_string(), texts[i]);
    const auto& numbers = lines[i].at("embedding").as_array();
    ASSERT_EQ(numbers.size(), 16U);
    for (std::size_t n = 0; n < 16; ++n)
      EXPECT_EQ(static_cast<float>(numbers[n].as_double()), mean[row][static_cast<std::int64_t>(n)].item<float>());
  }
}

TEST_F(InferCommands, EmbedNamesATextWithoutTokensAndOneThatIsTooLong) {
  EXPECT_THROW(printed(options(Command::kEmbed), {""}), base::UsageError);
  EXPECT_THROW(printed(options(Command::kEmbed), {std::string(49, 'a')}), base::UsageError);
}

TEST_F(InferCommands, AModelWithoutThatUseIsNamed) {
  try {
    printed(options(Command::kClassify), {"a"});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const base::UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("a model of the family llama has no labels"));
  }
}

TEST_F(InferCommands, WeightsMayBeKeptIn16Bits) {
  for (const char* dtype : {"bf16", "fp16"}) {
    auto asked = options(Command::kGenerate);
    asked.dtype = dtype;
    EXPECT_THAT(printed(asked, {"abc"}).notes, HasSubstr(dtype));
  }
}

TEST(Uses, EveryFamilyHasOne) {
  for (const auto* family : worker::families()) {
    SCOPED_TRACE(family->name);
    const Uses uses = uses_of(*family);
    EXPECT_EQ(uses.generator != nullptr, family->make_causal != nullptr || family->name == "t5");
    EXPECT_TRUE(uses.generator != nullptr || uses.embedder != nullptr || uses.image_embedder != nullptr)
        << "has no row in worker/infer/infer_model.cpp";
  }
}

TEST(Pooled, CountsTokensAlone) {
  const at::Tensor states = at::tensor({1.0F, 2.0F, 3.0F, 40.0F, 50.0F, 60.0F}).view({2, 3, 1});
  const at::Tensor mask = at::tensor({1, 1, 0, 1, 1, 1}).view({2, 3}).to(at::kBool);
  EXPECT_TRUE(at::equal(pooled(states, mask, Pool::kMean).flatten(), at::tensor({1.5F, 50.0F})));
  EXPECT_TRUE(at::equal(pooled(states, mask, Pool::kLast).flatten(), at::tensor({2.0F, 60.0F})));
  EXPECT_TRUE(at::equal(pooled(states, mask, Pool::kCls).flatten(), at::tensor({1.0F, 40.0F})));
  const at::Tensor filled = at::tensor({1.0F, NAN}).view({1, 2, 1}),
                   one = at::tensor({1, 0}).view({1, 2}).to(at::kBool);
  EXPECT_TRUE(at::equal(pooled(filled, one, Pool::kMean).flatten(), at::tensor({1.0F})))
      << "what fills a row may be anything";
}

}  // namespace
}  // namespace infer::testing
