// Goal: config.json and files of every kind of BERT are read as transformers means them, and a file of one head starts
// a model with the other.
#include "worker/models/bert/bert_model.h"

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>

#include <set>
#include <stdexcept>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "fsdp/files/export.h"
#include "fsdp/files/tensor_files.h"
#include "tests/worker/small_bert.h"
#include "tests/worker/temporary_folder.h"
#include "worker/models/family.h"

namespace worker {
namespace {

using fsdp::Json;
using testing::bert_draw;
using testing::drawn_bert;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::parameters_of;
using testing::small_bert;
using testing::TemporaryFolder;
using ::testing::UnorderedElementsAre;

TEST(BertConfig, TakesTransformersDefaultsForWhatIsAbsentOrNull) {
  const auto values = bert_family().read(Json::parse(R"({"hidden_dropout_prob": 0.2, "classifier_dropout": null})"));
  const auto model = spec::bind<spec::Bert>(spec::bert(), values);
  EXPECT_EQ(model.vocab_size, 30522);
  EXPECT_EQ(model.num_hidden_layers, 12);
  EXPECT_EQ(model.type_vocab_size, 2);
  EXPECT_EQ(model.layer_norm_eps, 1e-12);
  EXPECT_EQ(model.hidden_act, "gelu");
  EXPECT_EQ(model.attention_probs_dropout_prob, 0.1);
  EXPECT_EQ(model.dropout_of_classifier(), 0.2);
  EXPECT_TRUE(model.tie_word_embeddings);
}

TEST(BertConfig, RefusesWhatItLacksByName) {
  for (const auto& [text, says] :
       {std::pair{R"({"position_embedding_type": "relative_key"})", "position_embedding_type = \"relative_key\""},
        {R"({"is_decoder": true})", "has is_decoder = true, and this model has false only"},
        {R"({"add_cross_attention": true})", "add_cross_attention = true"},
        {R"({"problem_type": "regression"})", "problem_type = \"regression\""},
        {R"({"architectures": ["BertForTokenClassification"]})", "want one of: BertForMaskedLM"},
        {R"({"hidden_act": "gelu_fast"})", "hidden_act = \"gelu_fast\": want"}}) {
    try {
      bert_family().read(Json::parse(text));
      ADD_FAILURE() << text;
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr(says));
    }
  }
}

TEST(BertLabels, AreReadByNumberAndWrittenBothWays) {
  EXPECT_THAT(bert_labels(Json(Json::Object{})), ElementsAre("LABEL_0", "LABEL_1"));
  EXPECT_THAT(bert_labels(Json::parse(R"({"num_labels": 3})")), ElementsAre("LABEL_0", "LABEL_1", "LABEL_2"));
  EXPECT_THAT(bert_labels(Json::parse(R"({"id2label": {"1": "games", "0": "admin"}})")), ElementsAre("admin", "games"));
  std::vector<std::string> many;
  for (int i = 0; i < 12; ++i) many.push_back("class " + std::to_string(i));
  Json config =
      Json::parse(R"({"num_labels": 2, "id2label": {"0": "no", "1": "yes"}, "label2id": {"no": 0, "yes": 1}})");
  write_bert_labels(many, config);
  EXPECT_EQ(bert_labels(config), many) << "by number, not by text";
  EXPECT_EQ(config.at("label2id").size(), 12u);
  EXPECT_EQ(config.at("label2id").at("class 11").as_int(), 11);
  EXPECT_EQ(config.at("num_labels").as_int(), 12);
  EXPECT_EQ(config.at("problem_type").as_string(), "single_label_classification");
  EXPECT_NO_THROW(bert_family().read(config));
}

TEST(BertLabels, HostileOnesAreRefused) {
  for (const auto& [text, says] : {std::pair{R"({"id2label": {"0": "a", "2": "b"}})", "has 2 names and lacks number 1"},
                                   {R"({"id2label": {"0": 7}})", "id2label.0 = 7: want a text"},
                                   {R"({"id2label": {}})", "id2label = {}: want an object"},
                                   {R"({"id2label": ["a"]})", "want an object of names by number"},
                                   {R"({"num_labels": 1e18})", "num_labels = 1"},
                                   {R"({"num_labels": 0})", "num_labels = 0: want a whole number from 1 to 1048576"}}) {
    try {
      bert_labels(Json::parse(text));
      ADD_FAILURE() << text;
    } catch (const std::invalid_argument& error) {
      EXPECT_THAT(error.what(), HasSubstr(says));
    }
  }
  Json config;
  try {
    write_bert_labels(std::vector<std::string>{"a", "b", "a"}, config);
    ADD_FAILURE();
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("the label \"a\" has the numbers 0 and 2"));
  }
}

TEST(BertFiles, HaveOldNamesAndSecondNames) {
  const auto& names = bert_family().names;
  EXPECT_EQ(names.parameter_of("bert.embeddings.LayerNorm.gamma"), "bert.embeddings.LayerNorm.weight");
  EXPECT_EQ(names.parameter_of("bert.embeddings.LayerNorm.beta"), "bert.embeddings.LayerNorm.bias");
  EXPECT_EQ(names.parameter_of("cls.predictions.decoder.bias"), "cls.predictions.bias");
  EXPECT_EQ(names.parameter_of("bert.pooler.dense.bias"), "bert.pooler.dense.bias");
  for (const char* head : {"cls.seq_relationship.weight", "classifier.bias", "bert.pooler.dense.weight",
                           "pooler.dense.weight", "embeddings.position_ids", "bert.embeddings.position_ids"}) {
    EXPECT_TRUE(names.may_ignore(head, {})) << head;
  }
  EXPECT_FALSE(names.may_ignore("bert.encoder.layer.9.output.dense.bias", {}));
  for (const char* head : {"cls.predictions.bias", "classifier.weight", "bert.pooler.dense.bias"}) {
    EXPECT_TRUE(names.may_lack(head)) << head;
  }
  EXPECT_FALSE(names.may_lack("bert.embeddings.LayerNorm.weight"));
}

/// A model as one rank has it, from a folder. What the folder lacks is drawn.
template <class Model>
struct StartedBert {
  template <class... Arguments>
  explicit StartedBert(const std::filesystem::path& folder, const Arguments&... arguments)
      : model(std::make_shared<Model>(arguments...)), sharded(model, alone) {
    for (const auto& block : model->blocks()) sharded.fully_shard(block);
    sharded.fully_shard(model);
    const FileNames& names = bert_family().names;
    const auto p = parameters_of(*model);
    lacked = fsdp::load_tensors(
        sharded, fsdp::TensorFiles(folder),
        {.parameter_of =
             [&](const std::string& in_file) {
               return parameter_in(names, in_file, [&](const std::string& name) { return p.contains(name); });
             },
         .may_ignore = [&](const std::string& in_file) { return names.may_ignore(in_file, {}); },
         .may_lack = [&](const std::string& name) { return names.may_lack(name); }});
    const std::set<std::string> drawn(lacked.begin(), lacked.end());
    fsdp::initialize(sharded, 3, bert_draw(), [&](const std::string& name) { return drawn.contains(name); });
  }

  fsdp::DeviceMesh alone{nullptr, 0, 1, {}};
  std::shared_ptr<Model> model;
  fsdp::ShardedModel sharded;
  std::vector<std::string> lacked;
};

/// Writes the parameters of a model under changed names.
void write_bert(const TemporaryFolder& folder, const torch::nn::Module& model,
                const std::function<std::string(const std::string&)>& name_of) {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto& [name, value] : parameters_of(model)) tensors.emplace_back(name_of(name), value.detach());
  fsdp::write_safetensors(folder / fsdp::kModelFile, tensors);
}

TEST(BertFiles, OfMaskedLmStartAClassifierAndTheOtherWayRound) {
  const TemporaryFolder folder, back;
  const auto masked = drawn_bert<BertForMaskedLm>(small_bert(/*tied=*/false));
  write_bert(folder, *masked, [](const std::string& name) { return name; });
  const StartedBert<BertForSequenceClassification> classifier(folder.path(), small_bert(), 3);
  EXPECT_THAT(classifier.lacked, UnorderedElementsAre("bert.pooler.dense.weight", "bert.pooler.dense.bias",
                                                      "classifier.weight", "classifier.bias"));
  const auto got = parameters_of(*classifier.model), want = parameters_of(*masked);
  for (const auto& [name, value] : got) {
    if (!want.contains(name)) continue;
    EXPECT_TRUE(at::equal(value, want.at(name))) << name;
  }
  EXPECT_GT(got.at("classifier.weight").abs().min().item<double>(), 0) << "drawn";
  EXPECT_EQ(got.at("classifier.bias").abs().max().item<double>(), 0);

  write_bert(back, *classifier.model, [](const std::string& name) { return name; });
  const StartedBert<BertForMaskedLm> again(back.path(), small_bert());
  EXPECT_EQ(again.lacked.size(), 5u) << "the head's transform and bias";
  EXPECT_TRUE(at::equal(parameters_of(*again.model).at("bert.embeddings.word_embeddings.weight"),
                        want.at("bert.embeddings.word_embeddings.weight")));
}

TEST(BertFiles, OfAnotherNumberOfClassesAreRefusedByName) {
  const TemporaryFolder folder;
  write_bert(folder, *drawn_bert<BertForSequenceClassification>(small_bert(), 4),
             [](const std::string& n) { return n; });
  try {
    const StartedBert<BertForSequenceClassification> classifier(folder.path(), small_bert(), 3);
    ADD_FAILURE();
  } catch (const fsdp::UnfitTensors& error) {
    EXPECT_THAT(error.what(), HasSubstr("classifier.weight"));
  }
}

TEST(BertFiles, WithoutThePrefixAndWithOldNamesAreTheSameModel) {
  const TemporaryFolder folder;
  const auto masked = drawn_bert<BertForMaskedLm>(small_bert());
  write_bert(folder, *masked, [](std::string name) {
    if (name.starts_with("bert.")) name = name.substr(5);
    if (name == "cls.predictions.bias") return std::string("cls.predictions.decoder.bias");
    if (const auto at = name.find("LayerNorm.weight"); at != std::string::npos) name.replace(at + 10, 6, "gamma");
    if (const auto at = name.find("LayerNorm.bias"); at != std::string::npos) name.replace(at + 10, 4, "beta");
    return name;
  });
  const StartedBert<BertForMaskedLm> got(folder.path(), small_bert());
  EXPECT_THAT(got.lacked, ElementsAre());
  const auto values = parameters_of(*got.model);
  for (const auto& [name, value] : parameters_of(*masked)) EXPECT_TRUE(at::equal(value, values.at(name))) << name;
}

TEST(BertFamily, CountsTheLayersAboveAParameter) {
  spec::Values values;
  values.set("model.num_hidden_layers", std::int64_t{12});
  const auto above = [&](const char* name) { return bert_family().layers_above(values, name); };
  EXPECT_EQ(above("classifier.weight"), 0);
  EXPECT_EQ(above("cls.predictions.bias"), 0);
  EXPECT_EQ(above("bert.pooler.dense.weight"), 0);
  EXPECT_EQ(above("bert.encoder.layer.11.output.dense.weight"), 1);
  EXPECT_EQ(above("bert.encoder.layer.0.output.dense.weight"), 12);
  EXPECT_EQ(above("bert.embeddings.LayerNorm.weight"), 13);
}

}  // namespace
}  // namespace worker
