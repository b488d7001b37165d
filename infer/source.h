#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/checkpoint.h"
#include "fsdp/json.h"
#include "infer/options.h"
#include "models/family.h"
#include "schema/table.h"
#include "tokens/tokenizer.h"

namespace infer {

/// What MODEL names: a family with sizes, a tokenizer, and where the weights are. Nothing of the weights is read yet.
struct Source {
  std::filesystem::path folder;                    // of Hugging Face's files, or of the checkpoint
  std::optional<fsdp::CheckpointInfo> checkpoint;  // absent: the weights are Hugging Face's files in `folder`
  const worker::Family* family = nullptr;
  schema::Values values;  // of the rows of family->table, with their defaults
  fsdp::Json config;      // config.json; null in a checkpoint that does not hold it
  fsdp::Json generation;  // generation_config.json; null where there is none
  std::shared_ptr<const tokens::Tokenizer> tokenizer;

  /// "llama, step 100 of /data/run" for people.
  std::string name() const;
  /// The row "model.<leaf>", or 0.
  std::int64_t whole(const std::string& leaf) const { return values.whole("model." + leaf); }
  /// The architecture that config.json names, such as "BertForMaskedLM"; empty: none.
  std::string architecture() const;
};

/// Finds and describes the model of the options.
///
/// A folder with config.json is a model of Hugging Face, which an export is too. A folder with manifest.json is a
/// checkpoint. A folder with folders step-N has the checkpoints of a training. The manifest's extra.model describes the
/// model of a checkpoint. Older checkpoints lack it, and then the run file does: --run-file, or run.json beside the
/// checkpoints or in the newest attempt-N beside them, where musterd writes it.
///
/// The tokenizer is that of --tokenizer, of the folder, of extra.tokenizer, or of the folder that the run started from;
/// otherwise the byte vocabulary, if the model has no more tokens.
///
/// Throws worker::UsageError naming the place, what is wrong and what to do.
Source open_source(const Options& options);

/// Texts that end a generated text, as token ids: eos_token_id of generation_config.json, else of config.json, else the
/// tokenizer's own.
std::vector<std::int64_t> ends_of(const Source& source);

}  // namespace infer
