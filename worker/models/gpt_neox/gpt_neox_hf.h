#pragma once

#include "worker/models/family.h"

namespace worker {

/// GPT-NeoX as transformers stores it: GPTNeoXForCausalLM, from transformers 4 and 5. Pythia is one.
const Family& gpt_neox_family();

}  // namespace worker
