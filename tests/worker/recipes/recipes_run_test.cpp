// Goal: each recipe on prepared data learns, is evaluated, goes on at another number of ranks, and exports.
// Method: tiny models on folders that the test writes; the curve of a run that was stopped is compared with a whole
// one.
#include <gmock/gmock.h>

#include <ATen/ops/allclose.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/files/safetensors.h"
#include "tests/worker/image_folder.h"
#include "tests/worker/recipe_runs.h"
#include "worker/train/start_weights.h"

namespace worker::testing {
namespace {

using data::format::Kind;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Texts of class k are of tokens around 40 k. The last class has twice as many texts as another.
Records labelled(std::int64_t count, std::int64_t classes) {
  Records out;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto label = static_cast<std::int32_t>(std::min(i % (classes + 1), classes - 1));
    Ids ids;
    for (std::uint32_t k = 0; k < 4 + static_cast<std::uint32_t>(i % 9); ++k)
      ids.push_back(static_cast<std::uint32_t>(40 * label) + (static_cast<std::uint32_t>(i) * 7 + k * 3) % 40);
    out.push_back({{ids}, label});
  }
  return out;
}

TEST(Classify, LearnsTheClassesOfTextsAndTellsThem) {
  const PreparedFolder data(Kind::kLabelled, {{"train", labelled(120, 3)}, {"validation", labelled(30, 3)}},
                            [](data::format::Description& description) {
                              description.vocabulary = 130;
                              description.labels = {"admin", "games", "science"};
                            });
  const auto steps = whole_and_in_parts(
                         [&](const TemporaryFolder& folder) {
                           RunConfig config =
                               run("classify", kBert, data.path(), folder.path(),
                                   R"(,"steps":30,"class_weights":"balanced")", R"(,"bucket_batches":2)");
                           config.exports.folder = (folder / "out").native();
                           return config;
                         },
                         14, 2e-4)
                         .steps;
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

/// The logits' rows of an export by the names of their labels.
std::map<std::string, at::Tensor> rows_by_label(const std::filesystem::path& folder) {
  const auto labels = fsdp::Json::parse(read_file(folder / "config.json")).at("id2label");
  const fsdp::SafetensorsReader reader(folder / "model.safetensors");
  std::map<std::string, at::Tensor> out;
  for (const auto& [number, name] : labels.as_object())
    out[name.as_string()] = reader.tensor("classifier.weight")[std::stoll(number)].clone();
  return out;
}

// The labels of data are sorted, and those of a model need not be.
class PretrainedClassifier : public ::testing::Test {
 protected:
  static std::function<void(data::format::Description&)> with_labels(std::vector<std::string> labels) {
    return [labels = std::move(labels)](data::format::Description& description) {
      description.vocabulary = 130;
      description.labels = labels;
    };
  }

  /// Records of the same texts with their labels under other numbers.
  static Records renumbered(Records records, const std::vector<std::int32_t>& numbers) {
    for (auto& record : records) record.label = numbers[static_cast<std::size_t>(record.label)];
    return records;
  }

  /// Trains and exports. Returns the loss of the last step, and notes what a refused run says.
  double train_on(const PreparedFolder& data, const std::string& model, const std::string& more,
                  const std::string& name, double rate = 1e-12) {
    RunConfig config = run("classify", model, data.path(), folder_ / (name + "-run"), more);
    config.train.learning_rate = config.train.min_learning_rate = rate;
    config.exports.folder = (folder_ / name).native();
    std::vector<Listener> one(1);
    error_.clear();
    one[0].on_failure = [&](const std::string& text) { error_ = text; };
    train(config, one);
    return one[0].steps.empty() ? -1 : values(one[0].steps, "loss").back();
  }

  const TemporaryFolder folder_;
  const std::string pretrained_ = R"("pretrained":")" + (folder_ / "first").native() + "\"";
  std::string error_;
};

TEST_F(PretrainedClassifier, KeepsItsRowsWithTheirLabels) {
  const PreparedFolder first(Kind::kLabelled, {{"train", labelled(24, 3)}}, with_labels({"up", "down", "even"}));
  const PreparedFolder sorted(Kind::kLabelled, {{"train", renumbered(labelled(24, 3), {2, 0, 1})}},
                              with_labels({"down", "even", "up"}));
  const double learned = train_on(first, kBert, R"(,"steps":40)", "first", 0.005);
  EXPECT_LT(learned, 0.3);
  const double again = train_on(sorted, pretrained_, R"(,"steps":1)", "second");
  EXPECT_EQ(error_, "");
  EXPECT_LT(again, 0.4) << "each text has the row of its own label";
  const auto before = rows_by_label(folder_ / "first"), after = rows_by_label(folder_ / "second");
  ASSERT_EQ(after.size(), 3U);
  for (const auto& [label, row] : before) EXPECT_TRUE(at::allclose(after.at(label), row, 0, 1e-8)) << label;
}

TEST_F(PretrainedClassifier, OfOtherLabelsIsRefusedOrGetsANewHead) {
  const PreparedFolder first(Kind::kLabelled, {{"train", labelled(24, 3)}}, with_labels({"up", "down", "even"}));
  const PreparedFolder others(Kind::kLabelled, {{"train", labelled(24, 3)}}, with_labels({"a", "b", "c", "d"}));
  train_on(first, kBert, R"(,"steps":1)", "first");
  train_on(others, pretrained_, R"(,"steps":1)", "refused");
  EXPECT_THAT(error_, AllOf(HasSubstr("its classifier has the labels \"up\", \"down\", \"even\""),
                            HasSubstr("train.head = \"new\"")));
  train_on(others, pretrained_, R"(,"steps":1,"head":"new")", "drawn");
  EXPECT_EQ(error_, "");
  EXPECT_EQ(rows_by_label(folder_ / "drawn").size(), 4U);
  const fsdp::SafetensorsReader encoder(folder_ / "first/model.safetensors"), kept(folder_ / "drawn/model.safetensors");
  EXPECT_TRUE(
      at::allclose(encoder.tensor("bert.pooler.dense.weight"), kept.tensor("bert.pooler.dense.weight"), 0, 1e-8))
      << "the rest begins from the files";
}

TEST_F(PretrainedClassifier, OfAsManyOtherLabelsGetsANewHeadOrTheRowsByNumber) {
  const PreparedFolder first(Kind::kLabelled, {{"train", labelled(24, 3)}}, with_labels({"up", "down", "even"}));
  const PreparedFolder others(Kind::kLabelled, {{"train", labelled(24, 3)}}, with_labels({"x", "y", "z"}));
  train_on(first, kBert, R"(,"steps":40)", "first", 0.005);
  const auto learned = rows_by_label(folder_ / "first");
  train_on(others, pretrained_, R"(,"steps":1)", "refused");
  EXPECT_THAT(error_, HasSubstr("train.head = \"new\""));
  train_on(others, pretrained_, R"(,"steps":1,"head":"by_number")", "by_number");
  EXPECT_EQ(error_, "");
  train_on(others, pretrained_, R"(,"steps":1,"head":"new")", "new");
  EXPECT_EQ(error_, "");
  const auto kept = rows_by_label(folder_ / "by_number"), drawn = rows_by_label(folder_ / "new");
  ASSERT_EQ(drawn.size(), 3U);
  for (const auto& [label, row] : learned) {
    const auto other = label == "up" ? "x" : label == "down" ? "y" : "z";
    EXPECT_TRUE(at::allclose(kept.at(other), row, 0, 1e-8)) << label;
    EXPECT_FALSE(at::allclose(drawn.at(other), row, 0, 1e-3)) << label << ": a row of the file is still there";
  }
}

// transformers 5 reads the bias of a decoder that is not tied under a name of its own.
TEST(MaskedLm, WithAnUntiedDecoderExportsItsBiasUnderBothNames) {
  const PreparedFolder data(Kind::kTokens, {{"train", texts({Ids(30, 40), Ids(30, 50)})}},
                            [](data::format::Description& description) { description.vocabulary = 100; });
  for (const bool tied : {true, false}) {
    const TemporaryFolder folder;
    RunConfig config = run("masked_lm", kBert + (tied ? "" : R"(,"tie_word_embeddings":false)"), data.path(),
                           folder.path(), R"(,"steps":1)");
    config.exports.folder = (folder / "out").native();
    config.exports.full_state_file = (folder / "state.safetensors").native();
    std::vector<Listener> ranks(2);
    train(config, ranks);
    for (const auto& file : {folder / "out/model.safetensors", folder / "state.safetensors"}) {
      const fsdp::SafetensorsReader reader(file);
      ASSERT_EQ(reader.contains("cls.predictions.decoder.bias"), !tied) << file;
      if (tied) continue;
      EXPECT_TRUE(reader.tensor("cls.predictions.bias").equal(reader.tensor("cls.predictions.decoder.bias")));
    }
  }
}

TEST(MaskedLm, LearnsToFillInTokens) {
  std::vector<Ids> documents;
  for (std::uint32_t i = 0; i < 120; ++i) {
    Ids ids;
    for (std::uint32_t k = 0; k < 10 + i % 7; ++k) ids.push_back((i * 13) % 40 + k % 2 * 50);
    documents.push_back(ids);
  }
  const PreparedFolder data(Kind::kTokens, {{"train", texts(documents)}, {"validation", texts(documents)}},
                            [](data::format::Description& description) { description.vocabulary = 100; });
  const auto steps =
      whole_and_in_parts(
          [&](const TemporaryFolder& folder) {
            return run("masked_lm", kBert, data.path(), folder.path(), R"(,"steps":60,"mask_share":0.2)");
          },
          21, 5e-4)
          .steps;
  EXPECT_NEAR(values(steps, "loss").front(), std::log(101), 0.4) << "100 tokens and the mask";
  EXPECT_GT(values(steps, "validation/accuracy").back(), 2 * values(steps, "validation/accuracy").front() + 0.05);
}

const std::string kSmallHeads =
    R"(,"prototypes":16,"head_hidden_size":24,"head_bottleneck_size":8,"knn_neighbours":3,"knn_samples":24)";

/// Compares the tensors of two checkpoints whose names begin with `part`. Biases of keys have no gradient but rounding
/// noise, so they are near zero.
void expect_the_same(const std::map<std::string, at::Tensor>& whole, const std::map<std::string, at::Tensor>& parts,
                     const std::string& part, int least) {
  int compared = 0;
  for (const auto& [name, want] : whole) {
    if (!name.starts_with(part)) continue;
    ++compared;
    const at::Tensor& got = parts.at(name);
    ASSERT_EQ(got.sizes(), want.sizes()) << name;
    EXPECT_LE((got - want).norm().item<double>(), 1e-4 * want.norm().item<double>() + 1e-7) << name;
  }
  EXPECT_GE(compared, least) << part;
}

TEST(DinoRun, TrainsStudentAndTeacherAndGoesOnAtAnotherWorldSize) {
  const ImageFolder data;
  for (const char* centering : {"centering", "sinkhorn_knopp"}) {
    SCOPED_TRACE(centering);
    const auto [steps, whole, parts] = whole_and_in_parts(
        [&](const TemporaryFolder& folder) {
          // KoLeo compares the images of a rank, so its weight is 0 where ranks change.
          return run(
              "dino", kDino, data.path(), folder.path(),
              R"(,"steps":12,"koleo_weight":0,"teacher_momentum":0.9,"freeze_last_layer_epochs":0.5,"centering":")" +
                  std::string(centering) + "\"" + kSmallHeads,
              R"(,"local_crops":2,"local_crops_size":8)");
        },
        5, 2e-3);
    expect_the_same(whole, parts, "teacher/parameter/", 40);
    expect_the_same(whole, parts, "centres/parameter/", 2);
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
                            [](data::format::Description& description) {
                              description.vocabulary = 90;
                              description.labels = {"admin", "games"};
                            });
  expect_that_a_folder_gives_them("classify", kBert, data.path());
}

TEST_F(SizesOfAFolder, AFrozenEncoderStaysAndTheConfusionTableIsInTheLog) {
  const PreparedFolder data(Kind::kLabelled, {{"train", labelled(40, 2)}, {"validation", labelled(20, 2)}},
                            [](data::format::Description& description) {
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
                            [](data::format::Description& description) { description.vocabulary = 100; });
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
  } catch (const base::UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("data.local_crops_size: want a multiple of model.patch_size = 4"));
  }
}

/// The error of a run of a best checkpoint that refuses to begin.
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

// The data would tell how many tokens the model knows, so this is found out before the model is chosen.
TEST(Recipes, OnDataOfAnotherKindNameIt) {
  const ImageFolder images;
  const auto place = HasSubstr("data.prepared = \"" + images.path().native() + "\": ");
  const std::string llama = R"("hidden_size":16,"intermediate_size":24,"num_hidden_layers":1,"num_attention_heads":2)";
  const std::vector<std::array<std::string, 3>> rows = {{"causal_lm", llama, "tokens; prepare those: "},
                                                        {"seq2seq", kT5, "pairs; prepare those: "},
                                                        {"classify", kBert, "labelled; prepare those: "},
                                                        {"masked_lm", kBert, "tokens; prepare those: "}};
  for (const auto& [recipe, model, want] : rows) {
    EXPECT_THAT(refusal_of_best(recipe, model, images.path(), ""),
                AllOf(place, HasSubstr("it holds images, and the recipe " + recipe + " trains on " + want)));
  }
  const PreparedFolder texts_alone(Kind::kTokens, {{"train", texts({Ids(900, 40)})}}, of_bytes);
  EXPECT_THAT(refusal_of_best("dino", kDino, texts_alone.path(), "", kSmallHeads),
              HasSubstr("it holds tokens, and the recipe dino trains on images"));
  const TemporaryFolder empty;
  EXPECT_THAT(refusal_of_best("classify", kBert, empty.path(), ""),
              AllOf(HasSubstr("data.prepared = \"" + empty.path().native() + "\": "), HasSubstr("has no data.json: "),
                    HasSubstr("data.json would tell model.vocab_size")));
}

TEST(Recipes, WithoutAFolderNameTheKey) {
  for (const char* recipe : {"seq2seq", "classify", "masked_lm", "dino"}) {
    const std::string run = R"({"format":1,"name":"test","recipe":")" + std::string(recipe) + "\"}";
    try {
      parse_run_config(run);
      ADD_FAILURE() << recipe << " trains on no data";
    } catch (const base::UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("want the folder that muster data prepare has written"));
    }
  }
}

}  // namespace
}  // namespace worker::testing
