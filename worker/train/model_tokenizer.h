#pragma once

#include <optional>

#include "worker/batch/prepared_data.h"
#include "worker/train/config.h"

namespace worker {

/// The tokenizer whose ids a run's model knows: that of data.tokenizer, or else of model.pretrained if a tokenizer lies
/// there. nullopt: the data's own is as good as any. Throws base::UsageError naming the key where there is no such
/// file, or one that is too large for a tokenizer.
std::optional<ModelTokenizer> tokenizer_of(const RunConfig& config);

}  // namespace worker
