// OPT as transformers stores it: OPTForCausalLM with norms before attention and feed-forward, as all sizes but 350m
// have it. A family of muster's own has the table in spec/tables, and the rest in files of worker/models.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spec/limits.h"
#include "spec/table.h"
#include "spec/tables/shared_rules.h"
#include "worker/models/causal_model.h"
#include "worker/models/config_json.h"
#include "worker/models/config_members.h"
#include "worker/models/family.h"

namespace spec {

namespace {

/// Sizes of an OPT, named as in a Hugging Face config.json, and where its first weights come from.
struct Opt {
  std::int64_t vocab_size = 0;  // 0: what the data needs
  std::int64_t hidden_size = 0;
  std::int64_t ffn_dim = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t max_position_embeddings = 0;
  double dropout = 0;
  double init_std = 0;
  std::string pretrained;  // folder of a Hugging Face model to start from; empty: drawn weights

  std::int64_t head_size() const { return hidden_size / num_attention_heads; }
};

constexpr std::int64_t kOptPositions = 2048;

constexpr auto kOptKeys = std::to_array<Key>({
    row::vocab_size(into<&Opt::vocab_size>),
    row::hidden_size("256", into<&Opt::hidden_size>),
    row::whole("model.ffn_dim", "1024", {1, kMostSize}, "Width inside the feed-forward blocks.", into<&Opt::ffn_dim>),
    row::num_hidden_layers("4", into<&Opt::num_hidden_layers>),
    row::num_attention_heads("4", into<&Opt::num_attention_heads>),
    row::whole("model.max_position_embeddings", derived("2048, or data.sequence_length if that is longer"),
               {1, kMostSize}, "Longest sequence that the model takes.", into<&Opt::max_position_embeddings>, "tokens"),
    row::real("model.dropout", "0", {0, 0.99}, "Share of each block's results that training sets to zero.",
              into<&Opt::dropout>),
    row::real("model.init_std", "0.02", above(0, 1), "Standard deviation of the initial weights.",
              into<&Opt::init_std>),
    row::pretrained(into<&Opt::pretrained>),
});

void derive_opt(Values& values, std::uint64_t /*ranks*/) {
  derive_positions(values, kOptPositions);
}

void check_opt(const Values& values, std::uint64_t /*ranks*/, std::vector<Conflict>& conflicts) {
  want_even_heads(values.whole("model.hidden_size"), values.whole("model.num_attention_heads"), conflicts);
  want_positions(values, conflicts);
}

}  // namespace

/// The rows of Opt.
const Table& opt() {
  static const Table table{"opt", kOptKeys, derive_opt, check_opt};
  return table;
}

}  // namespace spec

namespace worker {

namespace {

// The modules.

/// The table of positions begins with two rows that no token has.
constexpr std::int64_t kUnusedPositions = 2;
constexpr double kNormEps = 1e-5;

void check_opt(const spec::Opt& model) {
  check_sizes({{"vocab_size", model.vocab_size},
               {"hidden_size", model.hidden_size},
               {"ffn_dim", model.ffn_dim},
               {"num_hidden_layers", model.num_hidden_layers},
               {"num_attention_heads", model.num_attention_heads},
               {"max_position_embeddings", model.max_position_embeddings}});
  std::vector<spec::Conflict> conflicts;
  spec::want_even_heads(model.hidden_size, model.num_attention_heads, conflicts);
  check_no_conflict(conflicts);
}

/// Self-attention with a projection for each of queries, keys and values. All have biases.
class OptAttention : public torch::nn::Module {
 public:
  explicit OptAttention(const spec::Opt& c)
      : heads_(c.num_attention_heads),
        k_proj_(add_child<Linear>(*this, "k_proj", c.hidden_size, c.hidden_size, /*has_bias=*/true)),
        v_proj_(add_child<Linear>(*this, "v_proj", c.hidden_size, c.hidden_size, /*has_bias=*/true)),
        q_proj_(add_child<Linear>(*this, "q_proj", c.hidden_size, c.hidden_size, /*has_bias=*/true)),
        out_proj_(add_child<Linear>(*this, "out_proj", c.hidden_size, c.hidden_size, /*has_bias=*/true)) {}

  /// [batch, positions, hidden] -> [batch, positions, hidden]. Reads and extends `cached` where it is not null.
  at::Tensor forward(const at::Tensor& x, const Mask& mask, KeyValues* cached) const {
    const at::Tensor q = split_heads(q_proj_->forward(x), heads_);
    at::Tensor k = split_heads(k_proj_->forward(x), heads_), v = split_heads(v_proj_->forward(x), heads_);
    use_cache(cached, k, v);
    return out_proj_->forward(joined_heads(attention(q, k, v, mask, /*scale=*/{}, /*dropout=*/0, is_training())));
  }

 private:
  std::int64_t heads_;
  std::shared_ptr<Linear> k_proj_, v_proj_, q_proj_, out_proj_;
};

/// x + attention(norm(x)), then x + fc2(relu(fc1(norm(x)))). The sums are outside of the two parts' wrappers.
class OptLayer : public Block {
 public:
  explicit OptLayer(const spec::Opt& c)
      : dropout_(c.dropout),
        self_attn_(add_child<OptAttention>(*this, "self_attn", c)),
        self_attn_layer_norm_(add_child<LayerNorm>(*this, "self_attn_layer_norm", c.hidden_size, kNormEps)),
        final_layer_norm_(add_child<LayerNorm>(*this, "final_layer_norm", c.hidden_size, kNormEps)),
        fc1_(add_child<Linear>(*this, "fc1", c.hidden_size, c.ffn_dim, /*has_bias=*/true)),
        fc2_(add_child<Linear>(*this, "fc2", c.ffn_dim, c.hidden_size, /*has_bias=*/true)) {}

  /// [batch, positions, hidden] -> [batch, positions, hidden].
  at::Tensor forward(at::Tensor x, const Mask& mask, KeyValues* cached) const {
    // The lambdas copy the mask, because a recomputing wrapper may call them after the model's own forward has
    // returned.
    return call(wrapper, std::move(x), [this, mask, cached](const at::Tensor& in) {
      const at::Tensor mid = in + call(attention_wrapper, in, [this, mask, cached](const at::Tensor& a) {
                               const at::Tensor out =
                                   self_attn_->forward(self_attn_layer_norm_->forward(a), mask, cached);
                               return drop_out(out, dropout_, is_training());
                             });
      return mid + call(mlp_wrapper, mid, [this](const at::Tensor& m) {
               const at::Tensor inside = activate(Activation::kRelu, fc1_->forward(final_layer_norm_->forward(m)));
               return drop_out(fc2_->forward(inside), dropout_, is_training());
             });
    });
  }

 private:
  double dropout_;
  std::shared_ptr<OptAttention> self_attn_;
  std::shared_ptr<LayerNorm> self_attn_layer_norm_, final_layer_norm_;
  std::shared_ptr<Linear> fc1_, fc2_;
};

/// OPT (Zhang et al., arXiv 2205.01068) with a language-model head, which is the table of token embeddings.
class OptForCausalLm : public CausalModel {
 public:
  /// The parameters have no values yet. Throws std::invalid_argument naming key, value and remedy when the sizes
  /// contradict each other.
  explicit OptForCausalLm(const spec::Opt& config) : config_(config) {
    check_opt(config_);
    const auto decoder = add_group(*add_group(*this, "model"), "decoder");
    const std::int64_t positions = config_.max_position_embeddings + kUnusedPositions;
    embed_tokens_ = add_child<Embedding>(*decoder, "embed_tokens", config_.vocab_size, config_.hidden_size);
    embed_positions_ = add_child<Embedding>(*decoder, "embed_positions", positions, config_.hidden_size);
    final_layer_norm_ = add_child<LayerNorm>(*decoder, "final_layer_norm", config_.hidden_size, kNormEps);
    layers_ = add_list<OptLayer>(*decoder, "layers", config_.num_hidden_layers, config_);
  }

  Cache cache(std::int64_t batch, std::int64_t capacity, at::ScalarType dtype, at::Device device) const override {
    return empty_cache(config_.num_hidden_layers, {batch, config_.num_attention_heads, capacity, config_.head_size()},
                       at::TensorOptions(dtype).device(device));
  }
  std::vector<std::shared_ptr<Block>> blocks() const override { return {layers_.begin(), layers_.end()}; }

 protected:
  at::Tensor hidden(const Rows& rows, Cache* cache) const override {
    const at::Tensor& ids = rows.ids;
    const std::int64_t begin = cache == nullptr ? 0 : cache->front().length, end = begin + ids.size(1);
    TORCH_CHECK(end <= config_.max_position_embeddings, "opt: got ", end,
                " positions; want at most max_position_embeddings = ", config_.max_position_embeddings);
    const at::Tensor places =
        rows.positions.defined() ? rows.positions : at::arange(begin, end, ids.options()).expand_as(ids);
    at::Tensor x = drop_out(embed_tokens_->forward(ids) + embed_positions_->forward(places + kUnusedPositions),
                            config_.dropout, is_training());
    const Mask mask = mask_of(rows, cache);
    for (std::size_t i = 0; i < layers_.size(); ++i)
      x = layers_[i]->forward(x, mask, cache == nullptr ? nullptr : &(*cache)[i]);
    return final_layer_norm_->forward(x);
  }
  Factors head(const at::Tensor& hidden) const override { return {hidden, embed_tokens_->weight}; }

 private:
  const spec::Opt config_;
  std::shared_ptr<Embedding> embed_tokens_, embed_positions_;
  std::shared_ptr<LayerNorm> final_layer_norm_;
  std::vector<std::shared_ptr<OptLayer>> layers_;
};

// The files.

using fsdp::Json;
using spec::Values;

constexpr auto kOptArchitectures = std::to_array<std::string_view>({"OPTForCausalLM", "OPTModel"});

/// Members of config.json beside the rows. One that no list has is refused.
constexpr auto kOptRead = std::to_array<std::string_view>({"word_embed_proj_dim"});
constexpr auto kOptOnly = std::to_array<OnlyValue>({{"do_layer_norm_before", "true"},
                                                    {"enable_bias", "true"},
                                                    {"layer_norm_elementwise_affine", "true"},
                                                    {"activation_function", "\"relu\""},
                                                    {"attention_dropout", "0"},
                                                    {"layerdrop", "0"},
                                                    {"tie_word_embeddings", "true"},
                                                    {"_remove_final_layer_norm", "false"},
                                                    {"is_encoder_decoder", "false"}});
constexpr auto kOptNoEffect = std::to_array<std::string_view>({"is_decoder", "cross_attention_hidden_size"});

Values read_opt(const Json& config) {
  want_family(config, "opt", kOptArchitectures);
  check_config(config, spec::opt(), {kOptRead, kOptOnly, kOptNoEffect});
  Values values = values_of_config(spec::opt(), config);
  set_absent(values, {{"model.vocab_size", 50272},
                      {"model.hidden_size", 768},
                      {"model.ffn_dim", 3072},
                      {"model.num_hidden_layers", 12},
                      {"model.num_attention_heads", 12},
                      {"model.max_position_embeddings", 2048},
                      {"model.dropout", 0.1},
                      {"model.init_std", 0.02}});
  want_member(config, "word_embed_proj_dim", values.whole("model.hidden_size"));
  return values;
}

void write_opt(const Values& values, std::string_view architecture, Json& config) {
  config["architectures"] = Json::Array{Json(architecture)};
  config["model_type"] = "opt";
  write_members(config, values, spec::opt());
  write_absent_ids(config, {"bos_token_id", "eos_token_id", "pad_token_id"});
}

}  // namespace

const Family& opt_family() {
  static const Family row{
      .name = "opt",
      .table = spec::opt(),
      .architectures = kOptArchitectures,
      .read = read_opt,
      .write = write_opt,
      .names = {.base = "model.",
                .may_ignore = [](std::string_view in_file, const Values&) { return in_file == "lm_head.weight"; }},
      .token_embedding = "model.decoder.embed_tokens.weight",
      .lora_layers = "q_proj v_proj",
      .draw = [](const Values& values, const std::string& name, const at::Tensor& into,
                 at::Generator& random) { draw_normal(name, into, values.real("model.init_std"), random); },
      .layers_above =
          [](const Values& values, const std::string& parameter) {
            return layers_above_blocks(values, parameter, "model.decoder.layers.", "model.decoder.embed_");
          },
      .make_causal = [](const Values& values) -> std::shared_ptr<CausalModel> {
        return std::make_shared<OptForCausalLm>(spec::bind<spec::Opt>(spec::opt(), values));
      }};
  return row;
}

}  // namespace worker
