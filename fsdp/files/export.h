#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/engine/fully_shard.h"

namespace fsdp {

/// The limit of a file that transformers takes.
inline constexpr std::int64_t kExportedFileBytes = 5'000'000'000;
/// The file that marks a folder as an export. Such a folder is replaced by the next export.
inline constexpr const char* kExportMark = "muster_export.json";

struct ExportOptions {
  std::filesystem::path folder;
  /// A file ends before the tensor that would make it larger. A tensor that is larger has a file of its own.
  std::int64_t max_file_bytes = kExportedFileBytes;
  /// float32, bfloat16 or float16. Absent: the shards' own, which is fp32 for what trains.
  std::optional<at::ScalarType> dtype;
  /// More files by name, such as config.json. Read on rank 0 only.
  std::map<std::string, std::string> texts;
  /// Files that are copied into the folder under their own names, such as tokenizer.json. Read on rank 0 only.
  std::vector<std::filesystem::path> copies;
  /// The files of tensors are <file_stem>.safetensors, <file_stem>-0000k-of-0000n.safetensors and
  /// <file_stem>.safetensors.index.json.
  std::string file_stem = "model";
  /// Who exports, for people, such as "job 7". The mark of the export holds it. Read on rank 0 only.
  std::string origin = {};
  /// The name that a parameter (ParameterInfo::name) has in the files. nullopt leaves it out. Must answer alike on
  /// every rank. Null: its own name.
  std::function<std::optional<std::string>(const std::string& parameter)> name_of;
  /// Further names under which the values of a parameter are written again, for readers that look for a tied parameter
  /// under its second name. Must answer alike on every rank. Null: none.
  std::function<std::vector<std::string>(const std::string& parameter)> more_names_of;
  /// The whole values of another parameter of the same unit, fp32 on the model's device. Not to be changed in place.
  /// Throws c10::Error for one that the unit does not have.
  using OfUnit = std::function<at::Tensor(const std::string& parameter)>;
  /// The values to write for a parameter, from its own: fp32 of the same shape on the model's device, not to be changed
  /// in place. Such as a matrix with its adapter added. Called on rank 0 only. A rank then needs the memory of a
  /// gathered unit in the shards' dtypes, and rank 0 a few tensors in fp32. Null: its own values.
  std::function<at::Tensor(const std::string& parameter, const at::Tensor& value, const OfUnit& of_unit)> value_of;
};

/// The names that a parameter has in the files of an export, its own first; empty: it is left out.
std::vector<std::string> exported_names(const std::string& parameter, const ExportOptions& options);

struct ExportedModel {
  std::int64_t bytes = 0;  // of the tensors
  std::vector<std::string> files;
};

/// ExportOptions::origin of the export in this folder. Empty: it has none, or there is no export that can be read.
std::string export_origin(const std::filesystem::path& folder);

/// Throws c10::Error unless export_model() may write to this folder: it is absent, empty, or an earlier export. The
/// text has the remedy.
void check_export_folder(const std::filesystem::path& folder);

/// Writes all parameters as whole tensors, in the files that transformers' save_pretrained() makes: model.safetensors,
/// or model-0000k-of-0000n.safetensors with model.safetensors.index.json. A tied parameter is written under its first
/// name. Rank 0 writes. A rank's memory beside its shard is one gathered unit in the exported dtype. Of units and
/// segments that name_of leaves out nothing is gathered.
///
/// A folder beside the target is written and synced, and takes the target's name when it is whole. So a crash leaves
/// the target as it was. What a crashed export left is removed by the next one. Collective. Throws c10::Error on all
/// ranks when rank 0 fails (disk full, read-only, a folder with other files, a file to copy that is not there, values
/// of another shape), when nothing is left to write, and when two parameters get one name.
ExportedModel export_model(ShardedModel& model, const ExportOptions& options);

}  // namespace fsdp
