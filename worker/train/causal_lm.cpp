#include "train/causal_lm.h"

#include <ATen/ops/empty.h>

#include <optional>
#include <string_view>
#include <utility>

#include "data/dataset.h"
#include "data/text_source.h"
#include "data/token_file.h"
#include "fsdp/initialize.h"
#include "fsdp/meta_device.h"
#include "models/llama.h"
#include "rank/errors.h"
#include "train/llama_folder.h"
#include "train/unit_wrapper.h"

namespace worker {
namespace {

class CausalLm : public Recipe {
 public:
  explicit CausalLm(const RunConfig& config) : config_(config) {}

  std::string data_source() const override {
    const DataConfig& data = config_.data;
    return data.source + (data.path.empty() ? "" : " " + data.path) + " max_bytes=" + std::to_string(data.max_bytes);
  }

  void load_data(const std::string& began_with) override {
    const DataConfig& data = config_.data;
    const std::string cache = data.cache_folder.empty() ? default_cache_folder() : data.cache_folder;
    std::optional<TextSource> source;
    std::string missing;
    try {
      source = open_text_source(
          {.kind = data.source, .path = data.path, .max_bytes = data.max_bytes, .man_folder = data.man_folder});
      data_name_ = source->name;
    } catch (const UsageError& error) {
      missing = error.what();
    }
    if (!began_with.empty()) tokens_ = find_tokens(began_with, cache, source ? source->description : "");
    if (!tokens_) {
      if (!source) throw UsageError(missing);
      tokens_ = open_or_build_tokens(*source, cache);
    } else if (!source || !tokens_->made_from(*source)) {
      data_name_ = "the text that the run began with";
      data_note_ = "the files of the text have changed since the run began" + (source ? "" : " (" + missing + ")") +
                   "; the run continues with the text that it began with, from " + cache;
    }
    dataset_.emplace(tokens_->tokens(), data.sequence_length, data.validation_fraction);
  }

  std::string data_fingerprint() const override { return tokens_->fingerprint(); }
  std::string data_note() const override { return data_note_; }
  std::string data_name() const override { return data_name_; }
  std::int64_t train_samples() const override { return dataset_->train_samples(); }
  std::int64_t validation_samples() const override { return dataset_->validation_samples(); }
  std::int64_t tokens_per_sample() const override { return dataset_->sequence_length(); }

  std::shared_ptr<torch::nn::Module> make_module() override {
    const fsdp::MetaDeviceGuard guard;
    return model_ = std::make_shared<LlamaForCausalLm>(config_.model);
  }

  void shard(fsdp::ShardedModel& sharded, const fsdp::ShardOptions& options) override {
    for (const auto& layer : model_->layers()) layer->wrapper = wrapper_of(sharded.fully_shard(layer, options));
    checkpoint_activations();
    fsdp::ShardOptions root = options;
    // Backward needs the head first. Freeing it in between would only cost a gather.
    root.reshard_after_forward = false;
    model_->wrapper = wrapper_of(sharded.fully_shard(model_, root));
    device_ = sharded.mesh().device();
  }

  std::string initialize(fsdp::ShardedModel& sharded) override {
    if (!config_.model.pretrained.empty()) {
      return load_llama_folder(config_.model.pretrained, config_.model, sharded);
    }
    fsdp::initialize(sharded, static_cast<std::uint64_t>(config_.train.seed),
                     [this](const std::string& name, const at::Tensor& values, at::Generator& random) {
                       model_->draw(name, values, random);
                     });
    return "seed " + std::to_string(config_.train.seed);
  }

  std::map<std::string, std::string> export_texts(at::ScalarType dtype) const override {
    return {{kLlamaConfigFile, llama_config(config_.model, dtype)}};
  }

  int layers_above(const std::string& parameter) const override {
    static constexpr std::string_view kLayers = "model.layers.";
    const auto layers = static_cast<int>(config_.model.num_hidden_layers);
    if (parameter.starts_with(kLayers)) return layers - std::stoi(parameter.substr(kLayers.size()));
    return parameter.starts_with("model.embed_tokens.") ? layers + 1 : 0;
  }

  double weight(const std::vector<std::int64_t>& samples) override {
    return static_cast<double>(static_cast<std::int64_t>(samples.size()) * dataset_->sequence_length());
  }

  at::Tensor loss(const std::vector<std::int64_t>& samples) override { return loss_of(inputs(samples)); }

  /// Tokens and targets, each [samples, sequence_length].
  std::vector<at::Tensor> inputs(const std::vector<std::int64_t>& samples) override {
    const std::int64_t length = dataset_->sequence_length();
    const auto count = static_cast<std::int64_t>(samples.size());
    const at::Tensor ids = room(count), targets = room(count);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i) * length;
      dataset_->copy_sample(samples[i], ids.mutable_data_ptr<std::int64_t>() + row,
                            targets.mutable_data_ptr<std::int64_t>() + row);
    }
    return {ids, targets};
  }

  at::Tensor loss_of(const std::vector<at::Tensor>& inputs) override {
    return model_->loss(inputs[0].to(device_, /*non_blocking=*/true), inputs[1].to(device_, /*non_blocking=*/true));
  }

  at::Tensor loss_without_data(std::int64_t samples) override { return loss_of({room(samples), room(samples)}); }

 private:
  /// Room for tokens [samples, sequence_length]. From pinned memory the copy to a GPU is queued, and the host goes on.
  at::Tensor room(std::int64_t samples) const {
    return at::empty({samples, config_.data.sequence_length},
                     at::TensorOptions(at::kLong).pinned_memory(device_.is_cuda()));
  }

  /// Recomputes inside of the layers' units, so that a layer is gathered once in backward.
  void checkpoint_activations() {
    using schema::ActivationCheckpointing;
    const auto what = config_.fsdp.activation_checkpointing;
    const auto every = static_cast<std::size_t>(config_.fsdp.activation_checkpointing_every);
    for (std::size_t i = 0; i < model_->layers().size(); i += every) {
      LlamaDecoderLayer& layer = *model_->layers()[i];
      if (what == ActivationCheckpointing::kBlock) layer.wrapper = nested(layer.wrapper, recomputing(layer));
      if (what == ActivationCheckpointing::kAttention) layer.attention_wrapper = recomputing(layer);
      if (what == ActivationCheckpointing::kMlp) layer.mlp_wrapper = recomputing(layer);
    }
  }

  const RunConfig& config_;
  std::string data_name_, data_note_;
  std::optional<TokenFile> tokens_;
  std::optional<TokenDataset> dataset_;
  std::shared_ptr<LlamaForCausalLm> model_;
  at::Device device_ = at::kCPU;
};

}  // namespace

std::unique_ptr<Recipe> make_causal_lm(const RunConfig& config) {
  return std::make_unique<CausalLm>(config);
}

}  // namespace worker
