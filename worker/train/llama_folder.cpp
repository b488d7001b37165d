#include "train/llama_folder.h"

#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "fsdp/json.h"
#include "fsdp/tensor_files.h"
#include "rank/errors.h"

namespace worker {
namespace {

using fsdp::Json;
namespace fs = std::filesystem;

[[noreturn]] void refuse_folder(const fs::path& folder, const std::string& why) {
  throw UsageError("model.pretrained = \"" + folder.native() + "\": " + why);
}

Json read_config(const fs::path& folder) {
  std::ifstream in(folder / kLlamaConfigFile, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) {
    refuse_folder(folder,
                  std::string("cannot read ") + kLlamaConfigFile +
                      " there; give a folder that save_pretrained() of transformers has written, on a file system "
                      "that all ranks see");
  }
  try {
    Json json = Json::parse(text.str());
    json.as_object();
    return json;
  } catch (const fsdp::JsonError& error) {
    refuse_folder(folder, std::string(kLlamaConfigFile) + ": " + error.what());
  }
}

/// A member that is neither absent nor null.
const Json* given(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

/// The member, or what transformers takes where it is absent.
Json setting(const Json& config, std::string_view key, Json standard) {
  const Json* value = given(config, key);
  return value == nullptr ? std::move(standard) : *value;
}

/// Members of config.json that would change the model in a way that LlamaForCausalLm does not have.
void check_features(const fs::path& folder, const Json& config) {
  const auto want = [&](std::string_view key, const Json& wanted) {
    const Json found = setting(config, key, wanted);
    if (found == wanted) return;
    refuse_folder(folder, std::string(kLlamaConfigFile) + " has " + std::string(key) + " = " + found.dump() +
                              ", and this Llama has " + wanted.dump() + " only; choose a model without it");
  };
  want("model_type", "llama");
  want("hidden_act", "silu");
  want("attention_bias", false);
  want("mlp_bias", false);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* rope = given(config, key);
    if (rope == nullptr || !rope->is_object()) continue;
    const Json* type = given(*rope, "rope_type");
    if (type == nullptr) type = given(*rope, "type");
    if (type == nullptr || *type == Json("default")) continue;
    refuse_folder(folder, std::string(kLlamaConfigFile) + " has " + key + " of type " + type->dump() +
                              ", and this Llama has unscaled RoPE only; choose a model without it");
  }
}

/// One text of a run file for each size that differs: "set model.hidden_size = 64".
std::string differences(const Json& config, const schema::Llama& model) {
  std::string out;
  const auto compare = [&](const char* key, const Json& there, const Json& here) {
    const bool equal = there.is_number() && here.is_number() ? there.as_double() == here.as_double() : there == here;
    if (!equal) out += (out.empty() ? "set model." : ", model.") + std::string(key) + " = " + there.dump();
  };
  const Json heads = setting(config, "num_attention_heads", 32);
  compare("vocab_size", setting(config, "vocab_size", 32000), model.vocab_size);
  compare("hidden_size", setting(config, "hidden_size", 4096), model.hidden_size);
  compare("intermediate_size", setting(config, "intermediate_size", 11008), model.intermediate_size);
  compare("num_hidden_layers", setting(config, "num_hidden_layers", 32), model.num_hidden_layers);
  compare("num_attention_heads", heads, model.num_attention_heads);
  compare("num_key_value_heads", setting(config, "num_key_value_heads", heads), model.num_key_value_heads);
  compare("rms_norm_eps", setting(config, "rms_norm_eps", 1e-6), model.rms_norm_eps);
  compare("tie_word_embeddings", setting(config, "tie_word_embeddings", false), model.tie_word_embeddings);
  // transformers 5 moved rope_theta into rope_parameters.
  const Json* rope = given(config, "rope_parameters");
  compare("rope_theta", setting(rope != nullptr ? *rope : config, "rope_theta", 10000.0), model.rope_theta);
  return out;
}

/// Tensors that some files hold beside the parameters.
bool may_ignore(const std::string& name, const schema::Llama& model) {
  return name.ends_with("rotary_emb.inv_freq") || (name == "lm_head.weight" && model.tie_word_embeddings);
}

}  // namespace

std::string load_llama_folder(const fs::path& folder, const schema::Llama& model, fsdp::ShardedModel& sharded) {
  const Json config = read_config(folder);
  try {
    check_features(folder, config);
    if (const std::string wanted = differences(config, model); !wanted.empty())
      refuse_folder(folder, std::string("the model there has other sizes; ") + wanted);
    const Json width = setting(config, "head_dim", model.head_dim());
    if (!(width == Json(model.head_dim()))) {
      refuse_folder(folder, std::string(kLlamaConfigFile) + " has head_dim = " + width.dump() +
                                ", and this Llama has hidden_size / num_attention_heads = " +
                                std::to_string(model.head_dim()) + "; choose another model");
    }
    const fsdp::TensorFiles files(folder);
    fsdp::load_tensors(sharded, files, [&](const std::string& name) { return may_ignore(name, model); });
    return std::to_string(files.file_count()) + (files.file_count() == 1 ? " file of " : " files of ") +
           folder.native();
  } catch (const fsdp::JsonError& error) {
    refuse_folder(folder, std::string(kLlamaConfigFile) + ": " + error.what());
  } catch (const fsdp::UnfitTensors& error) {
    refuse_folder(folder, error.what());
  }
}

std::string llama_config(const schema::Llama& model, at::ScalarType dtype) {
  Json config;
  config["architectures"] = Json::Array{"LlamaForCausalLM"};
  config["model_type"] = "llama";
  config["vocab_size"] = model.vocab_size;
  config["hidden_size"] = model.hidden_size;
  config["intermediate_size"] = model.intermediate_size;
  config["num_hidden_layers"] = model.num_hidden_layers;
  config["num_attention_heads"] = model.num_attention_heads;
  config["num_key_value_heads"] = model.num_key_value_heads;
  config["max_position_embeddings"] = model.max_position_embeddings;
  config["rope_theta"] = model.rope_theta;
  config["rms_norm_eps"] = model.rms_norm_eps;
  config["tie_word_embeddings"] = model.tie_word_embeddings;
  config["initializer_range"] = model.initializer_range;
  config["hidden_act"] = "silu";
  config["attention_bias"] = false;
  config["mlp_bias"] = false;
  // transformers would take ids of its own tokenizer for tokens that are absent here.
  config["bos_token_id"] = nullptr;
  config["eos_token_id"] = nullptr;
  config["torch_dtype"] = dtype == at::kBFloat16 ? "bfloat16" : dtype == at::kHalf ? "float16" : "float32";
  return config.dump(2) + "\n";
}

}  // namespace worker
