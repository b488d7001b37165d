#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/tokenizers/tokenizer.h"
#include "fsdp/files/checkpoint.h"
#include "fsdp/text/json.h"
#include "spec/table.h"
#include "worker/adapters/low_rank.h"
#include "worker/infer/infer_options.h"
#include "worker/models/family.h"

namespace infer {

/// Adapters that belong to a model in files of Hugging Face.
struct AdapterSource {
  worker::LowRank shape;
  std::filesystem::path base;  // the folder of that model
  std::string fingerprint;     // of its files, see worker::fingerprint_of(); empty: not known
  std::filesystem::path file;  // of PEFT; empty: they are in the checkpoint
};

/// A model's family and sizes.
struct Described {
  const worker::Family* family = nullptr;
  spec::Values values;         // of the rows of family->table, with their defaults
  fsdp::Json config;           // config.json; null in a checkpoint that does not hold it
  std::string pretrained;      // the folder that a training started from; empty: none, or not known
  std::string data_tokenizer;  // data.tokenizer of a training; empty: none, or not known
};

/// Model that MODEL names: a family with sizes, a tokenizer, and where the weights are. No weight is read yet.
struct Source : Described {
  std::filesystem::path folder;                    // of Hugging Face's or PEFT's files, or of the checkpoint
  std::optional<fsdp::CheckpointInfo> checkpoint;  // absent: the weights are files in `folder`
  std::optional<AdapterSource> adapters;           // absent: the weights are a whole model
  fsdp::Json generation;  // generation_config.json, in a checkpoint that of extra.model; null: there is none
  std::shared_ptr<const data::tokenizers::Tokenizer> tokenizer;

  /// "llama, step 100 of /data/run" for people.
  std::string name() const;
  /// The row "model.<leaf>", or 0.
  std::int64_t whole(const std::string& leaf) const { return values.whole("model." + leaf); }
  /// The architecture that config.json names, such as "BertForMaskedLM"; empty: none.
  std::string architecture() const;
};

/// Finds and describes the model of the options.
///
/// A folder with config.json is a model of Hugging Face, which an export is too. One with adapter_config.json holds
/// adapters of PEFT, and names the folder of the model that they belong to. A folder with manifest.json is a
/// checkpoint. A folder with folders step-N has the checkpoints of a training. The manifest's extra.model describes the
/// model of a checkpoint. Older checkpoints lack it, and then the run file does: --run-file, or run.json beside the
/// checkpoints or in the newest attempt-N beside them, where musterd writes it.
///
/// The tokenizer is that of --tokenizer, of the folder, of extra.tokenizer, or of the folder that the run started from;
/// otherwise the byte vocabulary, if the model has no more tokens.
///
/// Throws base::UsageError naming the place, what is wrong and what to do.
Source open_source(const Options& options);

/// Describes the model of a run file: its "model" has the sizes, and rows that it leaves out have their defaults.
/// Throws std::invalid_argument that names a key.
Described described_by_run(const fsdp::Json& run);

/// A JSON object in a file of at most worker::kMostConfigBytes. Throws base::UsageError naming the file.
fsdp::Json read_json_object(const std::filesystem::path& file);

/// Texts that end a generated text, as token ids: eos_token_id of generation_config.json, else of config.json, else the
/// tokenizer's own.
std::vector<std::int64_t> ends_of(const Source& source);

}  // namespace infer
