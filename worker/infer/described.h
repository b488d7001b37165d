#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "fsdp/files/checkpoint.h"
#include "fsdp/text/json.h"
#include "spec/table.h"
#include "worker/models/family.h"

namespace infer {

/// A model's family and sizes.
struct Described {
  const worker::Family* family = nullptr;
  spec::Values values;
  fsdp::Json config;           // config.json, where that described the model
  std::string pretrained;      // the folder that a training started from; empty: none, or not known
  std::string data_tokenizer;  // data.tokenizer of a training; empty: none, or not known
};

/// Describes a model of transformers by its files. Throws std::invalid_argument that names a file and a member, or the
/// families that there are.
Described described_by_files(const worker::ModelFiles& files);

/// Describes the model of a run file: its "model" has the sizes, and rows that it leaves out have their defaults.
/// Throws std::invalid_argument that names a key.
Described described_by_run(const fsdp::Json& run);

/// Describes a checkpoint by its manifest's extra.model, or else extra.run, or else by `run_file`, or by a run file
/// that lies where musterd writes it. A vocabulary that these leave open is that of the checkpoint's embedding. Throws
/// base::UsageError, and what the functions above throw.
Described described_by_checkpoint(const fsdp::CheckpointInfo& checkpoint, const std::string& part,
                                  const std::filesystem::path& run_file);

/// A member that is a text; empty: there is none.
std::string text_of(const fsdp::Json& object, std::string_view name);

/// A JSON object in a file of at most worker::kMostConfigBytes. Throws base::UsageError naming the file.
fsdp::Json read_json_object(const std::filesystem::path& file);

}  // namespace infer
