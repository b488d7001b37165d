// Goal: BERT computes what Hugging Face's BERT computes on the same weights, with either head and with none, and
// Hugging Face reads what we write. Method: tests/peers/families_peer.py; rows are padded and of two token types.
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "fsdp/files/export.h"
#include "fsdp/files/safetensors.h"
#include "fsdp/files/tensor_files.h"
#include "fsdp/text/json.h"
#include "tests/worker/peer_python.h"
#include "worker/models/bert/bert_model.h"
#include "worker/models/config_json.h"
#include "worker/models/family.h"
#include "worker/models/head_loss.h"

namespace worker {
namespace {

namespace fs = std::filesystem;
using testing::expect_close;
using testing::folders_in;
using testing::read_file;
using testing::TemporaryFolder;

/// The batch that both sides read.
struct PeerBatch {
  explicit PeerBatch(const fsdp::SafetensorsReader& file)
      : rows(file.tensor("ids").clone(), file.tensor("mask").clone(), file.tensor("types").clone()),
        targets(file.tensor("targets").clone()),
        labels(file.tensor("labels").clone()),
        class_weights(file.tensor("class_weights").clone()) {}

  BertRows rows;
  at::Tensor targets, labels, class_weights;
};

/// A BERT of a folder of transformers, as one rank trains it.
class LoadedBert {
 public:
  explicit LoadedBert(const fs::path& folder)
      : config_(fsdp::Json::parse(read_file(folder / kModelConfigFile))), values_(bert_family().read(config_)) {
    const auto sizes = spec::bind<spec::Bert>(spec::bert(), values_);
    const std::string& named = config_.at("architectures").as_array().front().as_string();
    if (named == "BertForSequenceClassification") {
      const auto labels = static_cast<std::int64_t>(bert_labels(config_).size());
      model = classifier_ = std::make_shared<BertForSequenceClassification>(sizes, labels);
    } else if (named == "BertModel") {
      model = std::make_shared<BertEncoder>(sizes);
    } else {
      model = masked_ = std::make_shared<BertForMaskedLm>(sizes);
    }
    sharded = std::make_unique<fsdp::ShardedModel>(model, alone_);
    for (const auto& block : model->blocks()) sharded->fully_shard(block);
    sharded->fully_shard(model);
    model->eval();
    load(folder);
  }

  /// [] of "hidden" and "logits", as families_peer.py names them.
  at::Tensor output(const std::string& name, const PeerBatch& batch) const {
    if (name == "hidden") return model->hidden(batch.rows);
    return masked_ ? masked_->forward(batch.rows) : classifier_->forward(batch.rows);
  }

  at::Tensor mean_loss(const PeerBatch& batch) const {
    if (masked_) return masked_->loss(batch.rows, batch.targets) / batch.targets.ne(data::order::kNoTarget).sum();
    if (classifier_) {
      return classifier_->loss(batch.rows, batch.labels, batch.class_weights) /
             class_weight(batch.labels, batch.class_weights);
    }
    const at::Tensor& mask = batch.rows.mask;
    return (model->hidden(batch.rows).square() * mask.unsqueeze(-1)).sum() / mask.sum();
  }

  /// The text of config.json from scratch, for an export.
  std::string config_text() const {
    fsdp::Json config;
    bert_family().write(values_,
                        masked_       ? "BertForMaskedLM"
                        : classifier_ ? "BertForSequenceClassification"
                                      : "BertModel",
                        config);
    if (classifier_) write_bert_labels(bert_labels(config_), config);
    write_dtype(config, at::kFloat);
    return config.dump();
  }

  bool has_head() const { return masked_ || classifier_; }

 private:
  void load(const fs::path& folder) {
    const FileNames& names = bert_family().names;
    const auto parameters = model->named_parameters();
    fsdp::LoadNames load;
    load.parameter_of = [&](const std::string& in_file) {
      return parameter_in(names, in_file, [&](const std::string& name) { return parameters.contains(name); });
    };
    load.may_ignore = [&](const std::string& in_file) { return names.may_ignore(in_file, values_); };
    fsdp::load_tensors(*sharded, fsdp::TensorFiles(folder), load);
  }

  fsdp::DeviceMesh alone_{nullptr, 0, 1, {}};
  fsdp::Json config_;
  spec::Values values_;
  std::shared_ptr<BertForMaskedLm> masked_;
  std::shared_ptr<BertForSequenceClassification> classifier_;

 public:
  std::shared_ptr<BertEncoder> model;
  std::unique_ptr<fsdp::ShardedModel> sharded;
};

using BertPeers = testing::PeerTest;

TEST_F(BertPeers, HiddenStatesLogitsLossAndGradientsAgreeAndTheExportIsRead) {
  const TemporaryFolder theirs, ours;
  peer("make", theirs.path(), "bert");
  const auto cases = folders_in(theirs.path());
  EXPECT_EQ(cases.size(), 10u);
  for (const auto& folder : cases) {
    SCOPED_TRACE(folder.filename());
    const LoadedBert loaded(folder);
    const fsdp::SafetensorsReader expected(folder / "expected.safetensors");
    const PeerBatch batch(expected);
    expect_close(loaded.output("hidden", batch), expected.tensor("hidden"), "hidden states");
    if (loaded.has_head()) expect_close(loaded.output("logits", batch), expected.tensor("logits"), "logits");
    const at::Tensor loss = loaded.mean_loss(batch);
    expect_close(loss, expected.tensor("loss"), "loss");
    loss.backward();
    for (const auto& item : loaded.model->named_parameters()) {
      const std::string name = loaded.has_head() ? item.key() : item.key().substr(5);  // without "bert."
      expect_close(item.value().grad(), expected.tensor("grad/" + name), "gradient of " + item.key());
    }
    fsdp::ExportOptions options;
    options.folder = ours / folder.filename().native();
    options.max_file_bytes = 20'000;
    options.texts[kModelConfigFile] = loaded.config_text();
    EXPECT_GT(fsdp::export_model(*loaded.sharded, options).files.size(), 2u);
    fsdp::write_safetensors(options.folder / "inputs.safetensors",
                            {{"ids", batch.rows.ids}, {"mask", batch.rows.mask}, {"types", batch.rows.types}});
  }
  peer("run", ours.path(), "bert");
  for (const auto& folder : folders_in(ours.path())) {
    SCOPED_TRACE(folder.filename());
    const fsdp::SafetensorsReader want(theirs.path() / folder.filename() / "expected.safetensors"),
        got(folder / "outputs.safetensors");
    for (const auto& [name, entry] : got.entries()) expect_close(got.tensor(name), want.tensor(name), "their " + name);
  }
}

}  // namespace
}  // namespace worker
