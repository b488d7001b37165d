#pragma once

#include <filesystem>

#include "data/tokenizers/spm_json.h"

namespace data::tokenizers {

/// How transformers 4.57 would use this model file, which `model` was read from. The files beside it say so:
/// - the style: "tokenizer_class" of tokenizer_config.json or config.json, else "model_type" of config.json. Without
/// them
///   a model that has the ids and settings of T5's or Llama's own has their style, and any other one is plain;
/// - added tokens: "added_tokens_decoder" and the named tokens of tokenizer_config.json; without the former also
///   special_tokens_map.json and added_tokens.json;
/// - "legacy", "add_prefix_space", "add_bos_token", "add_eos_token" and "extra_ids" of tokenizer_config.json.
/// Throws std::runtime_error that names the file: one that can't be read, and a class with rules of its own.
SpmOptions spm_options(const std::filesystem::path& file, const SpmModel& model);

}  // namespace data::tokenizers
