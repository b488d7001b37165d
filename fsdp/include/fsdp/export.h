#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/fully_shard.h"

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
};

struct ExportedModel {
  std::int64_t bytes = 0;  // of the tensors
  std::vector<std::string> files;
};

/// Throws c10::Error unless export_model() may write to this folder: it is absent, empty, or an earlier export. The
/// text has the remedy.
void check_export_folder(const std::filesystem::path& folder);

/// Writes all parameters as whole tensors, in the files that transformers' save_pretrained() makes: model.safetensors,
/// or model-0000k-of-0000n.safetensors with model.safetensors.index.json. A tied parameter is written under its first
/// name. Rank 0 writes. A rank's memory beside its shard is one gathered unit in the exported dtype.
///
/// A folder beside the target is written and synced, and takes the target's name when it is whole. So a crash leaves
/// the target as it was. What a crashed export left is removed by the next one. Collective. Throws c10::Error on all
/// ranks when rank 0 fails (disk full, read-only, a folder with other files).
ExportedModel export_model(ShardedModel& model, const ExportOptions& options);

}  // namespace fsdp
