// Goal: a decoder trains on a prepared folder, in chunks or as packed documents, and on no other one.
// Method: small folders that the test writes, trainings on one to three ranks.
#include <gmock/gmock.h>

#include "tests/worker/recipe_runs.h"

namespace worker::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kVocabulary = 300;

/// Documents that count upwards from a number of their own, so that the next token is easy to learn.
Records documents(std::int64_t count, std::uint32_t seed) {
  std::vector<Ids> out;
  for (std::int64_t i = 0; i < count; ++i) {
    Ids ids;
    const std::uint32_t first = (seed + static_cast<std::uint32_t>(i) * 37) % 200;
    for (std::uint32_t k = 0; k < 5 + (first % 11); ++k) ids.push_back(first + k);
    out.push_back(std::move(ids));
  }
  return texts(out);
}

PreparedFolder folder_of(std::uint32_t seed = 1) {
  return PreparedFolder(data::format::Kind::kTokens,
                        {{"train", documents(120, seed)}, {"validation", documents(12, seed + 1000)}},
                        [](data::format::Description& description) {
                          description.vocabulary = kVocabulary;
                          description.eos = 299;
                        });
}

RunConfig run_on(const PreparedFolder& data, const TemporaryFolder& folder, const std::string& train,
                 const std::string& more_data = "") {
  return parse_run_config(
      R"({"format":1,"name":"test","model":{"hidden_size":32,"intermediate_size":48,
      "num_hidden_layers":2,"num_attention_heads":4,"max_position_embeddings":64},"data":{"sequence_length":24,
      "prepared":")" +
      data.path().native() + "\"" + more_data +
      R"(},"train":{"learning_rate":0.01,"batch_size":6,"warmup_steps":0,"validation_every_steps":10)" + train +
      R"(},"checkpoint":{"every_steps":0,"folder":")" + (folder / "checkpoints").native() + "\"}}");
}

TEST(PreparedRun, LearnsInChunksAndAsPackedDocuments) {
  const auto data = folder_of();
  std::vector<double> firsts;
  for (const char* packing : {"chunks", "documents"}) {
    const TemporaryFolder folder;
    std::vector<Listener> ranks(2);
    train(run_on(data, folder, R"(,"steps":40)", std::string(R"(,"packing":")") + packing + "\""), ranks);
    const auto curve = values(ranks[0].steps, "loss"), held_out = values(ranks[0].steps, "validation/loss");
    EXPECT_NEAR(curve.front(), std::log(kVocabulary), 0.3) << packing;
    EXPECT_LT(curve.back(), 0.7 * curve.front()) << packing;
    ASSERT_EQ(held_out.size(), 4U);
    EXPECT_LT(held_out.back(), held_out.front()) << packing;
    firsts.push_back(curve.front());
  }
  EXPECT_NE(firsts[0], firsts[1]);
}

TEST(PreparedRun, GoesOnAtAnotherWorldSizeInTheMiddleOfAnEpoch) {
  const auto data = folder_of();
  for (const char* packing : {"chunks", "documents"}) {
    SCOPED_TRACE(packing);
    whole_and_in_parts(
        [&](const TemporaryFolder& folder) {
          return run_on(data, folder, R"(,"steps":12)", std::string(R"(,"packing":")") + packing + "\"");
        },
        5, 2e-5);
  }
}

std::string failure_of(const RunConfig& config, std::int64_t attempt = 1) {
  std::vector<Listener> ranks(1);
  std::string error;
  ranks[0].on_failure = [&](const std::string& text) { error = text; };
  train(config, ranks, attempt);
  return error;
}

TEST(PreparedRun, OnOtherDataOrWithAnotherTokenizerIsRefused) {
  const auto data = folder_of(), other = folder_of(7);
  const TemporaryFolder folder;
  EXPECT_EQ(failure_of(run_on(data, folder, R"(,"steps":2)")), "");
  EXPECT_THAT(failure_of(run_on(other, folder, R"(,"steps":4)"), 2),
              AllOf(HasSubstr("the text has changed since"),
                    HasSubstr("the run file asks for prepared " + other.path().native())));
  const TemporaryFolder another;
  EXPECT_THAT(failure_of(run_on(data, another, "", R"(,"tokenizer":"bytes")")),
              AllOf(HasSubstr("made with another tokenizer"), HasSubstr("bytes")));
  EXPECT_THAT(failure_of(run_on(data, another, "", R"(,"tokenizer":"/nowhere")")),
              HasSubstr("data.tokenizer = \"/nowhere\": there is no tokenizer.json, tokenizer.model or spiece.model"));
  RunConfig nowhere = run_on(data, another, "");
  nowhere.data_options.prepared = another.path().native();
  EXPECT_THAT(failure_of(nowhere), HasSubstr("data.prepared = \"" + another.path().native() + "\": "));
}

}  // namespace
}  // namespace worker::testing
