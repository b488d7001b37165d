// Compares worker/models/llama with Hugging Face's Llama on the same weights, read from its files and written for it.
// Needs a Python with torch and transformers: MUSTER_PEER_PYTHON, the one that ./dev test installs, or python3. Without
// one the tests are skipped.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/randint.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <map>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "fsdp/export.h"
#include "fsdp/initialize.h"
#include "fsdp/json.h"
#include "fsdp/safetensors.h"
#include "llama_sizes.h"
#include "models/llama.h"
#include "temporary_folder.h"
#include "train/llama_folder.h"

namespace worker {
namespace {

using testing::read_file;
using testing::TemporaryFolder;

int shell(const std::string& command) {
  return std::system(command.c_str());
}

/// The first Python with the peer's packages; empty when there is none. Importing them takes seconds.
std::string peer_python() {
  std::vector<std::string> candidates = {MUSTER_PEERS_FOLDER "/bin/python", "python3"};
  if (const char* chosen = std::getenv("MUSTER_PEER_PYTHON"); chosen != nullptr) candidates = {chosen};
  const std::string look =
      "from importlib.util import find_spec; exit(not all(map(find_spec, (\"torch\", \"transformers\", "
      "\"safetensors\"))))";
  for (const auto& python : candidates) {
    if (shell("'" + python + "' -c '" + look + "' >/dev/null 2>&1") == 0) return python;
  }
  return {};
}

class LlamaPeers : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { python_ = peer_python(); }
  void SetUp() override {
    if (python_.empty()) {
      GTEST_SKIP() << "no Python with torch, transformers and safetensors: ./dev test installs one unless "
                      "MUSTER_PEERS=0";
    }
  }

  static void peer(const std::string& mode, const std::filesystem::path& folder) {
    const auto log = folder / "peer.log";
    ASSERT_EQ(shell("'" + python_ + "' '" MUSTER_SOURCE_DIR "/tests/peers/llama_peer.py' " + mode + " '" +
                    folder.native() + "' >'" + log.native() + "' 2>&1"),
              0)
        << read_file(log);
  }

  static std::string python_;
};

std::string LlamaPeers::python_;

fsdp::Json json_in(const std::filesystem::path& file) {
  return fsdp::Json::parse(read_file(file));
}

void expect_close(const at::Tensor& got, const at::Tensor& expected, const std::string& what) {
  EXPECT_TRUE(at::allclose(got, expected, 1e-4, 1e-5))
      << what << " differs by up to " << (got - expected).abs().max().item<double>();
}

TEST_F(LlamaPeers, LogitsLossAndGradientsAgree) {
  const TemporaryFolder folder;
  peer("make", folder.path());
  int cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path().filename());
    ++cases;
    fsdp::DeviceMesh alone(nullptr, 0, 1, {});
    const auto owner = std::make_shared<LlamaForCausalLm>(llama_sizes(json_in(entry.path() / "config.json")));
    LlamaForCausalLm& model = *owner;
    fsdp::ShardedModel sharded(owner, alone);
    for (const auto& layer : model.layers()) sharded.fully_shard(layer);
    sharded.fully_shard(owner);
    load_llama_folder(entry.path(), model.config(), sharded);
    const fsdp::SafetensorsReader expected(entry.path() / "expected.safetensors");
    const at::Tensor logits = model.forward(expected.tensor("ids").clone());
    expect_close(logits, expected.tensor("logits"), "logits");
    const at::Tensor targets = expected.tensor("targets").clone();
    const at::Tensor loss = model.loss(expected.tensor("ids").clone(), targets) / targets.numel();
    expect_close(loss, expected.tensor("loss"), "loss");
    loss.backward();
    for (const auto& item : model.named_parameters()) {
      expect_close(item.value().grad(), expected.tensor("grad/" + item.key()), "gradient of " + item.key());
    }
  }
  EXPECT_EQ(cases, 4);
}

TEST_F(LlamaPeers, ReadsWhatWeWrite) {
  const TemporaryFolder folder;
  auto c = schema::standard<schema::Llama>(schema::llama());
  c.vocab_size = 257;
  c.hidden_size = 32;
  c.intermediate_size = 48;
  c.num_hidden_layers = 2;
  c.num_key_value_heads = 2;
  c.rms_norm_eps = 1e-6;
  c.initializer_range = 0.1;
  const auto owner = std::make_shared<LlamaForCausalLm>(c);
  const LlamaForCausalLm& model = *owner;
  fsdp::initialize(*owner, 3, [&](const std::string& name, const at::Tensor& values, at::Generator& random) {
    model.draw(name, values, random);
  });
  fsdp::DeviceMesh alone(nullptr, 0, 1, {});
  fsdp::ShardedModel sharded(owner, alone);
  for (const auto& layer : model.layers()) sharded.fully_shard(layer);
  sharded.fully_shard(owner);
  fsdp::ExportOptions options;
  options.folder = folder / "model";
  options.max_file_bytes = 20'000;
  options.texts[kLlamaConfigFile] = llama_config(c, at::kFloat);
  EXPECT_GT(fsdp::export_model(sharded, options).files.size(), 3u);
  const at::Tensor ids = at::randint(0, c.vocab_size, {2, 20}, at::kLong);
  fsdp::write_safetensors(folder / "model/ids.safetensors", {{"ids", ids}});
  peer("run", folder / "model");
  const at::NoGradGuard no_grad;
  const fsdp::SafetensorsReader answer(folder / "model/logits.safetensors");
  expect_close(model.forward(ids), answer.tensor("logits"), "logits");
}

}  // namespace
}  // namespace worker
