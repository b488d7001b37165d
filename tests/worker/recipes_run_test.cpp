// Goal: each recipe on prepared data learns, is evaluated, goes on at another number of ranks, and exports.
// Method: tiny models on folders that the test writes; the curve of a run that was stopped is compared with a whole
// one.
#include <gmock/gmock.h>

#include <cmath>

#include "batch_folders.h"
#include "fsdp/safetensors.h"
#include "image_folder.h"
#include "train/start_weights.h"
#include "train/step_measures.h"
#include "trainer_ranks.h"

namespace worker::testing {
namespace {

using prepared::Kind;
using ::testing::HasSubstr;

const std::string kBert = R"("hidden_size":32,"intermediate_size":48,"num_hidden_layers":2,"num_attention_heads":4,
                             "hidden_dropout_prob":0,"attention_probs_dropout_prob":0)";
const std::string kT5 = R"("d_model":32,"d_kv":8,"d_ff":48,"num_layers":2,"num_heads":4,"dropout_rate":0)";
const std::string kDino =
    R"("hidden_size":32,"num_hidden_layers":2,"num_attention_heads":4,"image_size":16,"patch_size":4)";

/// A training on a folder. Members of tables are added with a leading comma.
RunConfig run(const std::string& recipe, const std::string& model, const std::filesystem::path& data,
              const std::filesystem::path& folder, const std::string& train, const std::string& more_data = "") {
  return parse_run_config(R"({"format":1,"name":"test","recipe":")" + recipe + R"(","model":{)" + model +
                          R"(},"data":{"prepared":")" + data.native() + "\"" + more_data +
                          R"(},"train":{"learning_rate":0.005,"batch_size":12,"warmup_steps":0,)"
                          R"("validation_every_steps":10,"seed":3)" +
                          train + R"(},"checkpoint":{"every_steps":0,"folder":")" + (folder / "checkpoints").native() +
                          "\"}}");
}

std::vector<double> values(const std::vector<StepReport>& steps, const std::string& series) {
  std::vector<double> out;
  for (const auto& step : steps) {
    if (const auto value = value_of(step.values, series)) out.push_back(*value);
  }
  return out;
}

/// A run of 2 ranks, and the same run stopped after `stop` steps and continued by 3 ranks. Returns the reports of the
/// whole one.
std::vector<StepReport> whole_and_in_parts(const std::function<RunConfig(const TemporaryFolder&)>& config_in, int stop,
                                           double tolerance) {
  const TemporaryFolder whole_folder, folder;
  std::vector<Listener> whole(2), first(2), rest(3);
  train(config_in(whole_folder), whole);
  first[0].save_at = stop;
  train(config_in(folder), first);
  train(config_in(folder), rest, 2);
  auto curve = values(first[0].steps, "loss");
  const auto more = values(rest[0].steps, "loss");
  curve.insert(curve.end(), more.begin(), more.end());
  EXPECT_THAT(curve, ::testing::Pointwise(::testing::DoubleNear(tolerance), values(whole[0].steps, "loss")));
  return whole[0].steps;
}

/// Texts of class k are of tokens around 40 k.
Records labelled(std::int64_t count, std::int64_t classes) {
  Records out;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto label = static_cast<std::int32_t>(i * i % classes);
    Ids ids;
    for (std::uint32_t k = 0; k < 4 + static_cast<std::uint32_t>(i % 9); ++k)
      ids.push_back(static_cast<std::uint32_t>(40 * label) + (static_cast<std::uint32_t>(i) * 7 + k * 3) % 40);
    out.push_back({{ids}, label});
  }
  return out;
}

TEST(Classify, LearnsTheClassesOfTextsAndTellsThem) {
  const PreparedFolder data(Kind::kLabelled, {{"train", labelled(120, 3)}, {"validation", labelled(30, 3)}},
                            [](prepared::Description& description) {
                              description.vocabulary = 130;
                              description.labels = {"admin", "games", "science"};
                            });
  const auto steps = whole_and_in_parts(
      [&](const TemporaryFolder& folder) {
        RunConfig config = run("classify", kBert, data.path(), folder.path(),
                               R"(,"steps":30,"class_weights":"balanced")", R"(,"bucket_batches":2)");
        config.exports.folder = (folder / "out").native();
        return config;
      },
      14, 2e-4);
  EXPECT_NEAR(values(steps, "loss").front(), std::log(3), 0.3);
  EXPECT_GT(values(steps, "validation/accuracy").back(), 0.9);
  EXPECT_GT(values(steps, "validation/macro_f1").back(), 0.9);
  const TemporaryFolder folder;
  RunConfig config = run("classify", kBert, data.path(), folder.path(), R"(,"steps":1,"freeze_encoder":true)");
  config.exports.folder = (folder / "out").native();
  std::vector<Listener> one(1);
  train(config, one);
  const auto json = fsdp::Json::parse(read_file(folder / "out/config.json"));
  EXPECT_EQ(json.at("id2label").at("1").as_string(), "games");
  EXPECT_EQ(json.at("architectures").as_array().at(0).as_string(), "BertForSequenceClassification");
}

TEST(MaskedLm, LearnsToFillInTokens) {
  std::vector<Ids> documents;
  for (std::uint32_t i = 0; i < 120; ++i) {
    Ids ids;
    for (std::uint32_t k = 0; k < 10 + i % 7; ++k) ids.push_back((i * 13) % 40 + k % 2 * 50);
    documents.push_back(ids);
  }
  const PreparedFolder data(Kind::kTokens, {{"train", texts(documents)}, {"validation", texts(documents)}},
                            [](prepared::Description& description) { description.vocabulary = 100; });
  const auto steps = whole_and_in_parts(
      [&](const TemporaryFolder& folder) {
        return run("masked_lm", kBert, data.path(), folder.path(), R"(,"steps":60,"mask_share":0.2)");
      },
      21, 5e-4);
  EXPECT_NEAR(values(steps, "loss").front(), std::log(101), 0.4) << "100 tokens and the mask";
  EXPECT_GT(values(steps, "validation/accuracy").back(), 2 * values(steps, "validation/accuracy").front() + 0.05);
}

/// Pairs of bytes whose texts end.
void of_bytes(prepared::Description& description) {
  description.tokenizer_kind = "bytes";
  description.vocabulary = 257;
  description.eos = 256;
  description.suffix = {256};
}

/// The target is the input's first tokens.
Records pairs(std::int64_t count) {
  Records out;
  for (std::int64_t i = 0; i < count; ++i) {
    Ids input, target;
    for (std::uint32_t k = 0; k < 6; ++k) input.push_back(40 + (static_cast<std::uint32_t>(i) * 11 + k * k) % 50);
    target.assign(input.begin(), input.begin() + 2);
    out.push_back({{input, target}});
  }
  return out;
}

TEST(Seq2Seq, LearnsPairsAndComparesItsAnswers) {
  const PreparedFolder data(Kind::kPairs, {{"train", pairs(120)}, {"validation", pairs(24)}}, of_bytes);
  const auto steps = whole_and_in_parts(
      [&](const TemporaryFolder& folder) {
        return run("seq2seq", kT5, data.path(), folder.path(), R"(,"steps":40,"generated_samples":6)",
                   R"(,"sequence_length":16,"target_length":8)");
      },
      15, 5e-4);
  EXPECT_LT(values(steps, "validation/loss").back(), 0.7 * values(steps, "validation/loss").front());
  ASSERT_EQ(values(steps, "validation/rouge1").size(), 4U);
  for (const double score : values(steps, "validation/rouge1")) {
    EXPECT_GE(score, 0);
    EXPECT_LE(score, 1);
  }
}

TEST(Seq2Seq, LearnsToFillInSpans) {
  std::vector<Ids> documents;
  for (std::uint32_t i = 0; i < 60; ++i) documents.push_back(Ids(12 + i % 5, 40 + i % 20));
  const PreparedFolder data(Kind::kTokens, {{"train", texts(documents)}, {"validation", texts(documents)}},
                            [](prepared::Description& description) {
                              description.tokenizer_kind = "bytes";
                              description.vocabulary = 257;
                              description.eos = 256;
                            });
  const TemporaryFolder folder;
  std::vector<Listener> ranks(2);
  train(run("seq2seq", kT5, data.path(), folder.path(), R"(,"steps":30,"objective":"spans")",
            R"(,"sequence_length":24,"target_length":16)"),
        ranks);
  const auto held_out = values(ranks[0].steps, "validation/loss");
  EXPECT_LT(held_out.back(), 0.8 * held_out.front());
  EXPECT_TRUE(values(ranks[0].steps, "validation/rouge1").empty()) << "there are no answers to compare";
}

const std::string kSmallHeads =
    R"(,"prototypes":16,"head_hidden_size":24,"head_bottleneck_size":8,"knn_neighbours":3,"knn_samples":24)";

TEST(DinoRun, TrainsStudentAndTeacherAndGoesOnAtAnotherWorldSize) {
  const ImageFolder data;
  for (const char* centering : {"centering", "sinkhorn_knopp"}) {
    SCOPED_TRACE(centering);
    const auto steps = whole_and_in_parts(
        [&](const TemporaryFolder& folder) {
          // KoLeo compares the images of a rank, so its weight is 0 where ranks change.
          return run(
              "dino", kDino, data.path(), folder.path(),
              R"(,"steps":12,"koleo_weight":0,"teacher_momentum":0.9,"freeze_last_layer_epochs":0.5,"centering":")" +
                  std::string(centering) + "\"" + kSmallHeads,
              R"(,"local_crops":2,"local_crops_size":8)");
        },
        5, 2e-3);
    const auto losses = values(steps, "dino_loss");
    if (std::string_view(centering) == "centering") {
      EXPECT_LT(losses.front(), std::log(16)) << "student and teacher begin alike, so they agree";
    } else {
      EXPECT_LT(losses.back(), 0.9 * losses.front()) << "the teacher's answers are balanced from the start";
    }
    EXPECT_EQ(values(steps, "ibot_loss").size(), 12U);
    EXPECT_EQ(values(steps, "validation/knn_accuracy").size(), 2U);
    EXPECT_GT(values(steps, "validation/pixel_knn_accuracy").back(), 0.9) << "pixels tell left from right";
  }
}

TEST(DinoRun, ExportsTheTeachersBackbone) {
  const ImageFolder data;
  const TemporaryFolder folder;
  RunConfig config =
      run("dino", kDino, data.path(), folder.path(), R"(,"steps":3)" + kSmallHeads, R"(,"local_crops":0)");
  config.exports.folder = (folder / "out").native();
  std::vector<Listener> ranks(2);
  train(config, ranks);
  const fsdp::SafetensorsReader reader(folder / "out/model.safetensors");
  EXPECT_TRUE(reader.contains("embeddings.cls_token"));
  for (const auto& [name, entry] : reader.entries()) EXPECT_EQ(name.find("head"), std::string::npos) << name;
  EXPECT_TRUE(std::filesystem::exists(folder / "out/preprocessor_config.json"));
  EXPECT_EQ(fsdp::Json::parse(read_file(folder / "out/config.json")).at("model_type").as_string(), "dinov2");
}

/// The members that say how large a model is, of an export that was trained from `pretrained`, or with `model`.
class SizesOfAFolder : public ::testing::Test {
 protected:
  void export_to(const std::string& name, const std::string& recipe, const std::string& model,
                 const std::filesystem::path& data, const std::string& train, const std::string& more_data = "") {
    RunConfig config = run(recipe, model, data, folder_ / (name + "-run"), R"(,"steps":1)" + train, more_data);
    config.exports.folder = (folder_ / name).native();
    std::vector<Listener> ranks(2);
    worker::testing::train(config, ranks);
  }
  void expect_that_a_folder_gives_them(const std::string& recipe, const std::string& model,
                                       const std::filesystem::path& data, const std::string& train = "") {
    export_to("first", recipe, model, data, train);
    export_to("second", recipe, R"("pretrained":")" + (folder_ / "first").native() + "\"", data, train);
    EXPECT_EQ(read_file(folder_ / "first/config.json"), read_file(folder_ / "second/config.json"));
  }

  const TemporaryFolder folder_;
};

TEST_F(SizesOfAFolder, OfBert) {
  const PreparedFolder data(Kind::kLabelled, {{"train", labelled(40, 2)}, {"validation", labelled(20, 2)}},
                            [](prepared::Description& description) {
                              description.vocabulary = 90;
                              description.labels = {"admin", "games"};
                            });
  expect_that_a_folder_gives_them("classify", kBert, data.path());
}

TEST_F(SizesOfAFolder, AFrozenEncoderStaysAndTheConfusionTableIsInTheLog) {
  const PreparedFolder data(Kind::kLabelled, {{"train", labelled(40, 2)}, {"validation", labelled(20, 2)}},
                            [](prepared::Description& description) {
                              description.vocabulary = 90;
                              description.labels = {"admin", "games"};
                            });
  export_to("first", "classify", kBert, data.path(), "");
  ::testing::internal::CaptureStdout();
  RunConfig config = run("classify", R"("pretrained":")" + (folder_ / "first").native() + "\"", data.path(),
                         folder_ / "second-run", R"(,"steps":1,"freeze_encoder":true)");
  config.train.validation_every_steps = 1;
  config.exports.folder = (folder_ / "second").native();
  std::vector<Listener> ranks(2);
  worker::testing::train(config, ranks);
  const std::string said = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(said, HasSubstr("recall         F1  class\n"));
  EXPECT_THAT(said, HasSubstr("  games\n"));
  EXPECT_THAT(said, HasSubstr("20 samples; rows: truth, columns: guess\n"));
  const fsdp::SafetensorsReader before(folder_ / "first/model.safetensors"),
      after(folder_ / "second/model.safetensors");
  int frozen = 0;
  for (const auto& [name, entry] : before.entries()) {
    const bool stays = name.starts_with("bert.") && !name.starts_with("bert.pooler.");
    EXPECT_EQ(before.tensor(name).equal(after.tensor(name)), stays) << name;
    frozen += stays;
  }
  EXPECT_GT(frozen, 20);
}

// A plan gives a training of epochs a number of steps, which a run file may not give besides.
TEST_F(SizesOfAFolder, AreReadForAPlanOfEpochs) {
  const PreparedFolder data(Kind::kTokens, {{"train", texts({Ids(30, 40)})}},
                            [](prepared::Description& description) { description.vocabulary = 100; });
  export_to("first", "masked_lm", kBert, data.path(), "");
  RunConfig config = run("masked_lm", R"("pretrained":")" + (folder_ / "first").native() + "\"", data.path(),
                         folder_ / "plan", R"(,"epochs":3)");
  set_steps(config, 2);
  EXPECT_EQ(choose_model(config, 100).values.whole("model.hidden_size"), 32);
}

TEST_F(SizesOfAFolder, OfT5) {
  const PreparedFolder data(Kind::kPairs, {{"train", pairs(40)}, {"validation", pairs(20)}}, of_bytes);
  expect_that_a_folder_gives_them("seq2seq", kT5, data.path());
}

TEST_F(SizesOfAFolder, OfDinov2WhoseCropsFollow) {
  const ImageFolder data;
  expect_that_a_folder_gives_them("dino", kDino, data.path(), kSmallHeads);
  const RunConfig config = run("dino", R"("pretrained":")" + (folder_ / "first").native() + "\"", data.path(),
                               folder_ / "third-run", "", R"(,"local_crops_size":7)");
  try {
    choose_model(config, 0);
    ADD_FAILURE() << "crops of 7 pixels have no whole patches";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("data.local_crops_size: want a multiple of model.patch_size = 4"));
  }
}

/// What a run of a best checkpoint says when it refuses to begin.
std::string refusal_of_best(const std::string& recipe, const std::string& model, const std::filesystem::path& data,
                            const std::string& best, const std::string& train = "") {
  const TemporaryFolder folder;
  RunConfig config = run(recipe, model, data, folder.path(), R"(,"steps":2)" + train);
  config.checkpoint.best = best;
  std::vector<Listener> ranks(1);
  std::string error;
  ranks[0].on_failure = [&](const std::string& text) { error = text; };
  worker::testing::train(config, ranks);
  EXPECT_TRUE(ranks[0].steps.empty()) << "before the first step";
  return error;
}

TEST(BestOf, ASeriesThatIsNeverMeasuredIsRefused) {
  const ImageFolder images(/*with_classes=*/false);
  EXPECT_THAT(
      refusal_of_best("dino", kDino, images.path(), "validation/knn_accuracy", kSmallHeads),
      HasSubstr("checkpoint.best = \"validation/knn_accuracy\": the images have no classes; prepare them from"));
  const PreparedFolder answers(Kind::kPairs, {{"train", pairs(40)}, {"validation", pairs(20)}}, of_bytes);
  EXPECT_THAT(refusal_of_best("seq2seq", kT5, answers.path(), "validation/rouge1", R"(,"rouge":false)"),
              HasSubstr("no answers are written; set train.rouge = true, or choose another series"));
  const PreparedFolder games(Kind::kTokens, {{"train", texts({Ids(900, 40)})}, {"validation", texts({Ids(600, 40)})}},
                             of_bytes);
  const std::string llama = R"("hidden_size":16,"intermediate_size":24,"num_hidden_layers":1,"num_attention_heads":2)";
  EXPECT_THAT(refusal_of_best("causal_lm", llama, games.path(), "validation/legal_moves"),
              HasSubstr("moves are not asked for; give train.legal_moves the notation of the games"));
}

TEST(Recipes, WithoutAFolderNameTheKey) {
  for (const char* recipe : {"seq2seq", "classify", "masked_lm", "dino"}) {
    const std::string run = R"({"format":1,"name":"test","recipe":")" + std::string(recipe) + "\"}";
    try {
      parse_run_config(run);
      ADD_FAILURE() << recipe << " trains on no data";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("want the folder that muster data prepare has written"));
    }
  }
}

}  // namespace
}  // namespace worker::testing
