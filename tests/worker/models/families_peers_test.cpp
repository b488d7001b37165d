// Goal: each family computes what Hugging Face's model computes on the same weights, and Hugging Face reads what we
// write. Method: tests/peers/families_peer.py makes tiny models with every switch, and their outputs, losses and
// gradients.
#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "fsdp/files/export.h"
#include "fsdp/files/safetensors.h"
#include "fsdp/files/tensor_files.h"
#include "fsdp/text/json.h"
#include "tests/worker/peer_python.h"
#include "worker/models/config_json.h"
#include "worker/models/family.h"

namespace worker {
namespace {

namespace fs = std::filesystem;
using testing::expect_close;
using testing::folders_in;
using testing::read_file;
using testing::TemporaryFolder;

/// A decoder of a folder of transformers, as one rank trains it.
class Loaded {
 public:
  Loaded(const Family& family, const fs::path& folder)
      : values(family.read(fsdp::Json::parse(read_file(folder / kModelConfigFile)))),
        model(family.make_causal(values)),
        sharded(model, alone_) {
    for (const auto& block : model->blocks()) sharded.fully_shard(block);
    sharded.fully_shard(model);
    const fsdp::TensorFiles files(folder);
    fsdp::load_tensors(sharded, files, [&](const std::string& name) { return family.names.may_ignore(name, values); });
  }

 private:
  fsdp::DeviceMesh alone_{nullptr, 0, 1, {}};

 public:
  spec::Values values;
  std::shared_ptr<CausalModel> model;
  fsdp::ShardedModel sharded;
};

struct Case {
  const char* family;
  std::size_t models;  // that families_peer.py makes
};

class CausalPeers : public testing::PeerTest, public ::testing::WithParamInterface<Case> {};

TEST_P(CausalPeers, LogitsLossAndGradientsAgreeAndTheExportIsRead) {
  const Family& of = family(GetParam().family);
  const TemporaryFolder theirs, ours;
  peer("make", theirs.path(), of.name);
  const auto cases = folders_in(theirs.path());
  EXPECT_EQ(cases.size(), GetParam().models);
  for (const auto& folder : cases) {
    SCOPED_TRACE(folder.filename());
    Loaded loaded(of, folder);
    const fsdp::SafetensorsReader expected(folder / "expected.safetensors");
    const at::Tensor ids = expected.tensor("ids").clone(), targets = expected.tensor("targets").clone();
    expect_close(loaded.model->forward(ids), expected.tensor("logits"), "logits");
    const at::Tensor loss = loaded.model->loss(ids, targets) / targets.numel();
    expect_close(loss, expected.tensor("loss"), "loss");
    loss.backward();
    for (const auto& item : loaded.model->named_parameters()) {
      expect_close(item.value().grad(), expected.tensor("grad/" + item.key()), "gradient of " + item.key());
    }
    fsdp::Json config;  // as from scratch
    of.write(loaded.values, of.architectures.front(), config);
    write_dtype(config, at::kFloat);
    fsdp::ExportOptions options;
    options.folder = ours / folder.filename().native();
    options.max_file_bytes = 20'000;
    options.texts[kModelConfigFile] = config.dump();
    EXPECT_GT(fsdp::export_model(loaded.sharded, options).files.size(), 2u);
    fsdp::write_safetensors(options.folder / "inputs.safetensors", {{"ids", ids}});
  }
  peer("run", ours.path(), of.name);
  for (const auto& folder : folders_in(ours.path())) {
    const fsdp::SafetensorsReader want(theirs.path() / folder.filename() / "expected.safetensors"),
        got(folder / "outputs.safetensors");
    expect_close(got.tensor("logits"), want.tensor("logits"), "what transformers makes of our " + folder.native());
  }
}

INSTANTIATE_TEST_SUITE_P(Families, CausalPeers, ::testing::Values(Case{"llama", 10}, Case{"gpt_neox", 11}),
                         [](const auto& given) { return std::string(given.param.family); });

}  // namespace
}  // namespace worker
