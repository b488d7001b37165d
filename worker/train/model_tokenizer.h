#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "batch/prepared_data.h"
#include "train/config.h"

namespace worker {

/// The tokenizer whose ids a run's model knows: that of data.tokenizer, or else of model.pretrained if a tokenizer lies
/// there. nullopt: the data's own is as good as any. Throws UsageError naming the key where there is no such file.
std::optional<ModelTokenizer> tokenizer_of(const RunConfig& config);

/// The files of the tokenizer in a folder: tokenizer.json or a model of sentencepiece, and what names its special
/// tokens. Empty where there is none.
std::vector<std::filesystem::path> files_of_tokenizer(const std::filesystem::path& folder);

}  // namespace worker
