#include "worker/models/generation_json.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

#include "worker/models/config_members.h"

namespace worker {
namespace {

using fsdp::Json;

/// A member under whose values `allowed`, as JSON with spaces between, the model's own choice of tokens stays. Empty:
/// any value.
struct GenerationMember {
  std::string_view name;
  std::string_view allowed = {};
};

constexpr auto kGenerationMembers = std::to_array<GenerationMember>({
    // Read.
    {"eos_token_id"},
    {"decoder_start_token_id"},
    // The options of muster generate say how tokens are searched and drawn, and how many.
    {"do_sample"},
    {"temperature"},
    {"top_k"},
    {"top_p"},
    {"top_h"},
    {"min_p"},
    {"typical_p"},
    {"epsilon_cutoff"},
    {"eta_cutoff"},
    {"num_beams"},
    {"num_beam_groups"},
    {"early_stopping"},
    {"length_penalty"},
    {"diversity_penalty"},
    {"penalty_alpha"},
    {"num_return_sequences"},
    {"max_length"},
    {"max_new_tokens"},
    {"max_time"},
    {"renormalize_logits"},
    // They change the logits or the end, also of greedy text.
    {"min_length", "0"},
    {"min_new_tokens", "0"},
    {"repetition_penalty", "1"},
    {"encoder_repetition_penalty", "1"},
    {"no_repeat_ngram_size", "0"},
    {"encoder_no_repeat_ngram_size", "0"},
    {"bad_words_ids", "[]"},
    {"force_words_ids", "[]"},
    {"constraints", "[]"},
    {"forced_bos_token_id", "[]"},
    {"forced_eos_token_id", "[]"},
    {"forced_decoder_ids", "[]"},
    {"suppress_tokens", "[]"},
    {"begin_suppress_tokens", "[]"},
    {"exponential_decay_length_penalty", "[]"},
    {"sequence_bias", "[] {}"},
    {"guidance_scale", "1"},
    {"stop_strings", "[]"},
    {"watermarking_config", "{}"},
    {"token_healing", "false"},
    {"dola_layers", "[]"},
    // Members of no effect on the tokens.
    {"bos_token_id"},
    {"pad_token_id"},
    {"remove_invalid_values"},
    {"low_memory"},
    {"use_cache"},
    {"cache_implementation"},
    {"cache_config"},
    {"return_legacy_cache"},
    {"prefill_chunk_size"},
    {"return_dict_in_generate"},
    {"output_attentions"},
    {"output_hidden_states"},
    {"output_scores"},
    {"output_logits"},
    {"is_assistant"},
    {"num_assistant_tokens"},
    {"num_assistant_tokens_schedule"},
    {"assistant_confidence_threshold"},
    {"assistant_early_exit"},
    {"assistant_lookbehind"},
    {"target_lookbehind"},
    {"prompt_lookup_num_tokens"},
    {"max_matching_ngram_size"},
    {"disable_compile"},
    {"compile_config"},
    {"generation_kwargs"},
    {"continuous_batching_config"},
    {"transformers_version"},
    {"trust_remote_code"},
    {"_from_model_config"},
    {"_commit_hash"},
});

const GenerationMember* generation_member(std::string_view name) {
  const auto* const found = std::ranges::find(kGenerationMembers, name, &GenerationMember::name);
  return found == kGenerationMembers.end() ? nullptr : found;
}

bool is_allowed(const GenerationMember& member, const Json& value) {
  if (member.allowed.empty() || value.is_null()) return true;
  for (std::string_view rest = member.allowed; !rest.empty();) {
    const auto space = std::min(rest.find(' '), rest.size());
    const Json allowed = Json::parse(rest.substr(0, space));
    if (value.is_number() && allowed.is_number() ? value.as_double() == allowed.as_double() : value == allowed)
      return true;
    rest.remove_prefix(std::min(space + 1, rest.size()));
  }
  return false;
}

}  // namespace

bool is_of_generation(std::string_view member) {
  return generation_member(member) != nullptr;
}

void check_generation(const Json& generation, std::string_view file, bool is_whole) {
  if (!generation.is_object()) return;
  for (const auto& [name, value] : generation.as_object()) {
    if (value.is_null()) continue;
    const auto* const member = generation_member(name);
    if (member == nullptr && !is_whole) continue;
    if (member != nullptr && is_allowed(*member, value)) continue;
    throw std::invalid_argument(std::string(file) + " has " + name + " = " + shown_value(value) + ", and " +
                                (member == nullptr ? "this program does not know whether that changes the text"
                                                   : "muster generate does not do that") +
                                "; remove the member to get the text without it, or generate with transformers");
  }
}

}  // namespace worker
