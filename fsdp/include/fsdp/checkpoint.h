#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "fsdp/fully_shard.h"
#include "fsdp/json.h"
#include "fsdp/optimizer.h"

namespace fsdp {

// A checkpoint folder:
//   <folder>/step-00000100/rank-00000-of-00002.safetensors   one a rank: its slices "parameter/<name>",
//   "exp_avg/<name>",
//                                                            "exp_avg_sq/<name>" (fp32, 1-D) and "rank/<key>" tensors
//   <folder>/step-00000100/manifest.json                     written last; without it the checkpoint does not exist
//   <folder>/.tmp-step-00000100-attempt-2/                   one being written
// [Note: commit] Rank 0 asks may_write; every rank writes and fsyncs its file; when all have, rank 0 writes and fsyncs
// the manifest, asks may_commit, renames the folder, asks may_write once more and fsyncs the parent. A crash at any
// point leaves the earlier checkpoints as they were. A process may be frozen between any two of these, and wake up when
// a newer attempt has begun and saved the same step: so what stood in the new one's place is kept until the second
// may_write, and put back if that refuses.

/// A save or load that failed, the same text on every rank: which rank, which file, why.
class CheckpointError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// may_write or may_commit refused: this attempt is no longer the job's. Nothing is published, or no longer.
class CheckpointFenced : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

/// The newest whole checkpoint is of another model: loading it again cannot help.
class CheckpointMismatch : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

struct CheckpointOptions {
  std::filesystem::path folder;
  /// The attempt that writes; keeps temporary names apart.
  std::int64_t attempt = 1;
  /// Newest checkpoints that stay after a save; at least 1.
  int keep = 3;
  /// Compare file checksums when loading.
  bool verify_checksums = true;
  /// Asked on rank 0 before a save writes anything, and again when it is published, see [Note: commit],
  /// and before an old one is removed: empty allows it, anything else is the reason against. Must not wait for anybody.
  std::function<std::string()> may_write;
  /// The same right before the commit; may wait, and keep others from becoming the job's newest attempt meanwhile.
  std::function<std::string()> may_commit;
};

/// What a step's checkpoint holds besides parameters and optimizer.
struct CheckpointState {
  std::int64_t step = 0;
  /// Free JSON, rank 0's counts: scheduler, data position.
  Json extra;
  /// Small tensors of each rank itself, such as {"random_state", cpu_random_state()}.
  std::map<std::string, at::Tensor> rank_tensors;
};

/// A complete checkpoint on disk.
struct CheckpointInfo {
  std::filesystem::path path;
  std::int64_t step = 0;
  int world_size = 0;
  std::int64_t attempt = 0;
  std::int64_t bytes = 0;  // all files without the manifest
  Json manifest;
};

/// The checkpoints of a folder, newest first, and those passed over with the reason ("step-00000100: no
/// manifest.json").
struct CheckpointList {
  std::vector<CheckpointInfo> valid;
  std::vector<std::string> ignored;
};

/// Looks into a folder: manifests are parsed, file sizes compared, checksums not. A folder that is not there has none;
/// throws CheckpointError for one that cannot be read, which may well have some.
CheckpointList list_checkpoints(const std::filesystem::path& folder);
/// The newest of them.
std::optional<CheckpointInfo> latest_valid(const std::filesystem::path& folder);

struct SavedCheckpoint {
  std::filesystem::path path;
  std::int64_t bytes = 0;  // of all ranks
  /// Problems after the commit, such as an old checkpoint that would not go away; filled on rank 0.
  std::vector<std::string> warnings;
};

struct LoadedCheckpoint {
  CheckpointState state;
  std::filesystem::path path;
  /// World size that wrote it. rank_tensors are filled only when it is the same as now.
  int world_size = 0;
  /// Newer checkpoints passed over, with reasons.
  std::vector<std::string> ignored;
};

/// Saves and loads one model's checkpoints. All methods are collective; model and optimizer must outlive it.
class Checkpointer {
 public:
  Checkpointer(ShardedModel& model, AdamW& optimizer, CheckpointOptions options);

  /// Writes and commits a checkpoint, then removes all but the newest `keep` and that of step `also_keep`, however old
  /// it is. Nothing is removed before the commit. Throws CheckpointError, the same on every rank, when any rank could
  /// not write (disk full, read-only, no permission), CheckpointFenced when may_write or may_commit refused; in both
  /// cases nothing new is visible and the temporary folder is gone as far as it could be removed. A checkpoint of the
  /// same step is replaced.
  SavedCheckpoint save(const CheckpointState& state, std::optional<std::int64_t> also_keep = std::nullopt);

  /// Loads the newest checkpoint that is whole on every rank; a torn or corrupt one is passed over. Another world size
  /// or other units than those that wrote it are fine: each rank reads the slices that overlap its own. Returns nullopt
  /// (with `ignored` filled in, when given) if there is none; the model is unchanged then. Throws CheckpointMismatch
  /// when a checkpoint is whole but of another model (names, shapes), CheckpointError when the folder cannot be read.
  std::optional<LoadedCheckpoint> load_latest(std::vector<std::string>* ignored = nullptr);

  /// Removes temporary folders left by this or earlier attempts. Call it once before training.
  void remove_stale();

 private:
  std::filesystem::path temporary(std::int64_t step) const;
  std::string write_files(const std::filesystem::path& folder, const CheckpointState& state, Json& files);
  Json make_manifest(const CheckpointState& state) const;
  std::string begin(const std::filesystem::path& folder) const;
  struct Committed;
  Committed commit(const std::filesystem::path& from, const std::filesystem::path& to, const Json& manifest);
  std::vector<std::string> prune(const std::filesystem::path& newest, std::int64_t step,
                                 std::optional<std::int64_t> also_keep);
  std::optional<LoadedCheckpoint> try_load(const std::filesystem::path& path, std::int64_t step,
                                           std::vector<std::string>& passed_over);

  ShardedModel& model_;
  AdamW& optimizer_;
  CheckpointOptions options_;
};

}  // namespace fsdp
