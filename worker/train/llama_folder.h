#pragma once

#include <filesystem>
#include <string>

#include "fsdp/fully_shard.h"
#include "schema/tables/llama.h"

namespace worker {

/// Gives a sharded LlamaForCausalLm the weights of a Hugging Face folder: config.json beside safetensors files, in
/// fp32, bf16 or fp16. Each rank reads its own slices. Returns what was read, for people. Not collective.
///
/// Throws UsageError that names model.pretrained, its value and the remedy when config.json is missing, describes
/// another model than `model`, or asks for what this Llama does not have (such as biases or scaled RoPE), and when a
/// tensor does not fit. Throws c10::Error when a file cannot be read. max_position_embeddings may differ, as no weight
/// depends on it.
std::string load_llama_folder(const std::filesystem::path& folder, const schema::Llama& model,
                              fsdp::ShardedModel& sharded);

/// The file that describes a Hugging Face model.
inline constexpr const char* kLlamaConfigFile = "config.json";

/// The text of kLlamaConfigFile for weights of `dtype`, as transformers reads it.
std::string llama_config(const schema::Llama& model, at::ScalarType dtype);

}  // namespace worker
