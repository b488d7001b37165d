// Compares worker/models/llama with Hugging Face's Llama on the same weights. Needs a Python with torch and
// transformers: MUSTER_PEER_PYTHON, the one that ./dev test installs, or python3. Without one the tests are skipped.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/randint.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "fsdp/initialize.h"
#include "fsdp/json.h"
#include "fsdp/safetensors.h"
#include "models/llama.h"
#include "temporary_folder.h"

namespace worker {
namespace {

using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;

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

schema::Llama config_of(const fsdp::Json& json) {
  auto c = schema::standard<schema::Llama>(schema::llama());
  c.vocab_size = json.at("vocab_size").as_int();
  c.hidden_size = json.at("hidden_size").as_int();
  c.intermediate_size = json.at("intermediate_size").as_int();
  c.num_hidden_layers = json.at("num_hidden_layers").as_int();
  c.num_attention_heads = json.at("num_attention_heads").as_int();
  c.num_key_value_heads = json.at("num_key_value_heads").as_int();
  c.max_position_embeddings = json.at("max_position_embeddings").as_int();
  c.rms_norm_eps = json.at("rms_norm_eps").as_double();
  c.tie_word_embeddings = json.at("tie_word_embeddings").as_bool();
  const fsdp::Json* rope = json.find("rope_parameters");  // transformers 5 moved rope_theta here
  c.rope_theta = (rope != nullptr ? *rope : json).at("rope_theta").as_double();
  return c;
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
    LlamaForCausalLm model(config_of(fsdp::Json::parse(read_file(entry.path() / "config.json"))));
    const fsdp::SafetensorsReader weights(entry.path() / "model.safetensors");
    const fsdp::SafetensorsReader expected(entry.path() / "expected.safetensors");
    auto parameters = model.named_parameters();
    ASSERT_EQ(parameters.size(), weights.entries().size());
    {
      const at::NoGradGuard no_grad;
      for (auto& item : parameters) item.value().copy_(weights.tensor(item.key()));
    }
    const at::Tensor logits = model.forward(expected.tensor("ids").clone());
    expect_close(logits, expected.tensor("logits"), "logits");
    const at::Tensor targets = expected.tensor("targets").clone();
    const at::Tensor loss = model.loss(expected.tensor("ids").clone(), targets) / targets.numel();
    expect_close(loss, expected.tensor("loss"), "loss");
    loss.backward();
    for (auto& item : parameters) {
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
  LlamaForCausalLm model(c);
  fsdp::initialize(model, 3, [&](const std::string& name, const at::Tensor& values, at::Generator& random) {
    model.draw(name, values, random);
  });
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto& item : model.named_parameters()) tensors.emplace_back(item.key(), item.value().detach());
  fsdp::write_safetensors(folder / "model.safetensors", tensors, {{"format", "pt"}});
  const at::Tensor ids = at::randint(0, c.vocab_size, {2, 20}, at::kLong);
  fsdp::write_safetensors(folder / "ids.safetensors", {{"ids", ids}});
  write_file(folder / "config.json", R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":257,
    "hidden_size":32,"intermediate_size":48,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
    "max_position_embeddings":2048,"rope_theta":10000.0,"rms_norm_eps":1e-6,"tie_word_embeddings":false})");
  peer("run", folder.path());
  const at::NoGradGuard no_grad;
  const fsdp::SafetensorsReader answer(folder / "logits.safetensors");
  expect_close(model.forward(ids), answer.tensor("logits"), "logits");
}

}  // namespace
}  // namespace worker
