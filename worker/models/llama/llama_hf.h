#pragma once

#include <string>

#include "worker/models/family.h"

namespace worker {

/// Llama and CodeLlama as transformers stores them: LlamaForCausalLM, from transformers 4 and 5.
const Family& llama_family();

/// Family::layers_above of a Llama with so many blocks.
int llama_layers_above(int layers, const std::string& parameter);

}  // namespace worker
