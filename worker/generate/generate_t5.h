#pragma once

#include <memory>

#include "worker/generate/decode.h"
#include "worker/models/t5/t5_model.h"

namespace worker {

/// T5 for generate(): its encoder reads the prompts, and its decoder begins with decoder_start_token_id. The model must
/// outlive the result.
std::unique_ptr<EncoderDecoder> answers_of(T5ForConditionalGeneration& model, Activations activations = {});

}  // namespace worker
