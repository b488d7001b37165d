#pragma once

#include <string_view>

#include "worker/models/family.h"

namespace worker {

/// T5 as transformers stores it: T5ForConditionalGeneration, of T5, T5 1.1 and Flan-T5. It is no decoder, so
/// make_causal is null.
const Family& t5_family();

/// The architecture of T5 that is trained here, as config.json names it.
inline constexpr std::string_view kT5Architecture = "T5ForConditionalGeneration";

/// True if a parameter is kept in fp32 where the others have 16 bits: the last layer of a feed-forward block, whose
/// sums overflow in fp16. transformers keeps it, too (_keep_in_fp32_modules).
bool is_wide_in_t5(std::string_view parameter);

}  // namespace worker
