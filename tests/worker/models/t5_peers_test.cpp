// Goal: T5 computes what Hugging Face's T5 computes on the same weights, and Hugging Face reads what we write. Method:
// tests/peers/families_peer.py; texts have padding on either side, and some targets do not count.
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
#include "worker/models/config_json.h"
#include "worker/models/family.h"
#include "worker/models/head_loss.h"
#include "worker/models/t5/t5_model.h"

namespace worker {
namespace {

namespace fs = std::filesystem;
using testing::expect_close;
using testing::folders_in;
using testing::read_file;
using testing::TemporaryFolder;

/// A T5 of a folder of transformers, as one rank trains it.
class LoadedT5 {
 public:
  explicit LoadedT5(const fs::path& folder)
      : values(t5_family().read(fsdp::Json::parse(read_file(folder / kModelConfigFile)))),
        model(std::make_shared<T5ForConditionalGeneration>(spec::bind<spec::T5>(spec::t5(), values))),
        sharded(model, alone_) {
    for (const auto& block : model->blocks()) sharded.fully_shard(block);
    sharded.fully_shard(model);
    model->eval();
    const FileNames& names = t5_family().names;
    fsdp::LoadNames of_files;
    of_files.parameter_of = [&](const std::string& in_file) { return names.parameter_of(in_file); };
    of_files.may_ignore = [&](const std::string& in_file) { return names.may_ignore(in_file, values); };
    EXPECT_TRUE(fsdp::load_tensors(sharded, fsdp::TensorFiles(folder), of_files).empty());
  }

 private:
  fsdp::DeviceMesh alone_{nullptr, 0, 1, {}};

 public:
  spec::Values values;
  std::shared_ptr<T5ForConditionalGeneration> model;
  fsdp::ShardedModel sharded;
};

class T5Peers : public testing::PeerTest {};

TEST_F(T5Peers, LogitsLossAndGradientsAgreeAndTheExportIsRead) {
  const TemporaryFolder theirs, ours;
  peer("make", theirs.path(), "t5");
  const auto cases = folders_in(theirs.path());
  EXPECT_EQ(cases.size(), 10u);
  for (const auto& folder : cases) {
    SCOPED_TRACE(folder.filename());
    LoadedT5 loaded(folder);
    const auto& model = *loaded.model;
    const fsdp::SafetensorsReader expected(folder / "expected.safetensors");
    const at::Tensor ids = expected.tensor("ids").clone(), mask = expected.tensor("mask").clone(),
                     targets = expected.tensor("targets").clone();
    expect_close(model.encode(ids, mask), expected.tensor("encoded"), "what the encoder makes");
    expect_close(model.forward(ids, mask, model.decoder_inputs(targets)), expected.tensor("logits"), "logits");
    const at::Tensor loss = model.loss(ids, mask, targets) / targets.ne(data::order::kNoTarget).sum();
    expect_close(loss, expected.tensor("loss"), "loss");
    loss.backward();
    for (const auto& item : model.named_parameters()) {
      expect_close(item.value().grad(), expected.tensor("grad/" + item.key()), "gradient of " + item.key());
    }
    fsdp::Json config;  // as from scratch
    t5_family().write(loaded.values, t5_family().architectures.front(), config);
    write_dtype(config, at::kFloat);
    fsdp::ExportOptions options;
    options.folder = ours / folder.filename().native();
    options.max_file_bytes = 20'000;
    options.texts[kModelConfigFile] = config.dump();
    EXPECT_GT(fsdp::export_model(loaded.sharded, options).files.size(), 2u);
    fsdp::write_safetensors(options.folder / "inputs.safetensors",
                            {{"ids", ids}, {"mask", mask}, {"targets", targets}});
  }
  peer("run", ours.path(), "t5");
  for (const auto& folder : folders_in(ours.path())) {
    const fsdp::SafetensorsReader want(theirs.path() / folder.filename() / "expected.safetensors"),
        got(folder / "outputs.safetensors");
    expect_close(got.tensor("logits"), want.tensor("logits"), "what transformers makes of our " + folder.native());
  }
}

}  // namespace
}  // namespace worker
