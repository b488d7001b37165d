#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "fsdp/engine/fully_shard.h"
#include "fsdp/files/safetensors.h"
#include "fsdp/optim/optimizers.h"
#include "fsdp/text/json.h"

namespace fsdp {

// A checkpoint folder:
//   <folder>/step-00000100/rank-00000-of-00002.safetensors   one file a rank, see below
//   <folder>/step-00000100/manifest.json                     written last; without it the checkpoint does not exist
//   <folder>/.tmp-step-00000100-attempt-2/                   a checkpoint that attempt 2 is writing
// The file of a rank holds the rank's slices as 1-D fp32 tensors "<part>/parameter/<name>" and "<part>/<state>/<name>",
// such as "model/exp_avg/norm", and its own tensors "rank/<key>". A part may leave out parameters; the manifest then
// says how many ("left_out"), and an earlier program that loads it names one that is missing. The manifest is of format
// version 4, which has a checksum for each block of a file, one for its header, and one for the manifest's own text.
// Version 3 had none for the manifest. Versions 1 and 2 had one for a whole file. Version 1 had one part, "model",
// whose keys began without it and whose optimizer was AdamW. Checkpoints of all versions load. A later version begins
// in the same way, so that a program can tell it from damage: see CheckpointTooNew.
//
// [Note: sums] What a load reads has a checksum that the load compares. So each byte that changes is named, and none is
// loaded. A new file in a checkpoint needs one, too (fsdp/files/checkpoint_manifest.h for a small one).
//
// [Note: commit] A save goes through these steps:
//   1. Rank 0 asks may_write.
//   2. Every rank writes and fsyncs its file. Along "replicate" ranks hold the same, so the first one of them writes.
//   3. Rank 0 writes and fsyncs the manifest, after all ranks have done step 2.
//   4. Rank 0 asks may_commit, renames the temporary folder, asks may_write once more, and fsyncs the parent
//      folder. The first save also fsyncs the folders above it.
// A crash at any point leaves the earlier checkpoints as they were. A process may be frozen between any two steps and
// wake up after a newer attempt has saved the same step. The rename of step 4 then replaces the newer attempt's
// checkpoint. So rank 0 keeps the replaced folder until the second may_write, and puts it back if that call refuses.

/// A save or load failed. The text is the same on every rank and says which rank, which file and why.
class CheckpointError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// may_write or may_commit refused: this attempt is no longer the job's current one. The save published nothing, or has
/// taken back what it published.
class CheckpointFenced : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

/// The newest whole checkpoint belongs to other parts, another model or another optimizer. Trying to load it again
/// cannot help.
class CheckpointMismatch : public CheckpointError {
 public:
  using CheckpointError::CheckpointError;
};

/// A later program has saved the newest checkpoint, in a format that this one does not read. Going on from an older one
/// would lose steps, and later replace the newer ones. The text names the folder, both versions and the remedy.
class CheckpointTooNew : public CheckpointMismatch {
 public:
  using CheckpointMismatch::CheckpointMismatch;
};

/// One model of a checkpoint, such as the trained one or the teacher beside it.
struct CheckpointPart {
  /// Without "/", and not "rank".
  std::string name;
  ShardedModel& model;
  /// Its states and step counts are saved and loaded. Null: the weights alone.
  Optimizer* optimizer = nullptr;
  /// True if a parameter (ParameterInfo::name) is saved, with its states. A checkpoint may lack the others when it is
  /// loaded: these keep their values, or stay without, and their states become zeros. Such as a base model that comes
  /// from elsewhere, beside adapters that train. Must answer alike on every rank and in every run. Null: all are saved.
  std::function<bool(const std::string& parameter)> saved = {};
  /// When the part is loaded without an optimizer: a parameter gets the average of its weights where the checkpoint has
  /// one (Optimizer::keep_average) and the parameter was updated.
  bool averages = false;

  bool saves(const ParameterInfo& parameter) const { return !saved || saved(parameter.name); }
};

struct CheckpointOptions {
  std::filesystem::path folder;
  /// The number of the attempt that writes. It makes the names of temporary folders unique.
  std::int64_t attempt = 1;
  /// How many of the newest checkpoints stay after a save; at least 1.
  int keep = 3;
  /// Compare checksums of the files of ranks when loading. That of the manifest is always compared.
  bool verify_checksums = true;
  /// Load the parts of this run though the checkpoint has more, such as the teacher alone. A save throws c10::Error,
  /// because it would lose the others.
  bool some_parts = false;
  /// Load the parameters of this run's models though the checkpoint's parts have more, such as a model without its
  /// heads. A save throws as with some_parts.
  bool some_parameters = false;
  /// How many bytes of a file one checksum covers; at least 1. A load reads and compares only the blocks that hold what
  /// the rank needs. Smaller blocks read less around it, and make a longer manifest.
  std::int64_t block_bytes = kBlockBytes;
  /// Called on rank 0: before a save writes anything, after the rename (see [Note: commit]), and before an old
  /// checkpoint is removed. An empty result allows the action; any other text is the reason against it. Must not block.
  /// A save that begin_save() began calls this and the next two on its own thread.
  std::function<std::string()> may_write;
  /// Called on rank 0 right before the rename, with the same meaning of its result. It may block, and it may keep
  /// another attempt from becoming the job's newest one until the rename is done.
  std::function<std::string()> may_commit;
  /// Called on rank 0 when a commit is over, however it ended, and before old checkpoints are removed. It ends what
  /// may_commit holds.
  std::function<void()> commit_over;
};

/// State that the checkpoint of a step holds besides parameters and optimizer state.
struct CheckpointState {
  std::int64_t step = 0;
  /// Any JSON, such as scheduler and data position. The value of rank 0 is saved.
  Json extra;
  /// Small tensors that differ by rank along "shard", such as {"random_state", random_state()}.
  std::map<std::string, at::Tensor> rank_tensors;
};

/// A complete checkpoint on disk.
struct CheckpointInfo {
  std::filesystem::path path;
  std::int64_t step = 0;
  int world_size = 0;  // ranks along "shard", one file each
  std::int64_t attempt = 0;
  std::int64_t bytes = 0;  // of all files but the manifest
  Json manifest;           // without its checksum
};

/// The checkpoints of a folder, newest first. `ignored` lists the broken ones with the reason ("step-00000100: no
/// manifest.json"). `too_new` lists those that a later program has saved; see CheckpointTooNew.
struct CheckpointList {
  struct TooNew {
    std::int64_t step = 0;
    std::string problem;
  };
  std::vector<CheckpointInfo> valid;
  std::vector<std::string> ignored;
  std::vector<TooNew> too_new;

  /// Throws CheckpointTooNew when a later program has saved a checkpoint after `step`.
  void refuse_newer_than(std::int64_t step) const;
};

/// Lists the checkpoints of `folder`. Compares the checksums of manifests, and the sizes of other files. A missing
/// folder has no checkpoints. Throws CheckpointError for a folder that cannot be read, because it may hold checkpoints.
CheckpointList list_checkpoints(const std::filesystem::path& folder);
/// The newest valid checkpoint of `folder`. Throws as list_checkpoints(), and CheckpointTooNew when a later program has
/// saved a newer one.
std::optional<CheckpointInfo> latest_valid(const std::filesystem::path& folder);

/// Compares every block of every file with its checksum. Throws CheckpointError naming the first damaged file, its
/// block and the block's bytes. Not collective.
void validate(const CheckpointInfo& info);

struct SavedCheckpoint {
  std::filesystem::path path;
  std::int64_t bytes = 0;  // of the files of all ranks
  /// Problems after the commit, such as an old checkpoint that could not be removed. Filled on rank 0 only.
  std::vector<std::string> warnings;
};

class Snapshot;

struct LoadedCheckpoint {
  CheckpointState state;
  std::filesystem::path path;
  /// Ranks along "shard" in the run that wrote the checkpoint. rank_tensors are filled only when this run has as many.
  int world_size = 0;
  /// Bytes that this rank has read of the files of ranks: twice what it needed, and what its blocks have beside it.
  std::int64_t bytes_read = 0;
  /// Newer checkpoints that were passed over, with reasons.
  std::vector<std::string> ignored;
};

/// Saves and loads checkpoints. All methods are collective but poll(), wait_for_removal() and snapshot_bytes(). Models
/// and optimizers must outlive the Checkpointer.
///
/// [Note: saving beside the training] begin_save() copies what a save needs into memory of the host and returns. A
/// thread then does what save() does, and removes old checkpoints. The thread has a communicator of its own
/// (DeviceMesh::make_control()), because a communicator serves one thread at a time, and because ranks would otherwise
/// have to call the collectives of the save and those of the training in one order. At most one save is under way.
///   nothing -> begin_save() -> under way -> over, with an outcome -> poll() or wait() -> nothing
/// The destructor waits for a save and a removal under way, and drops their outcomes. Not thread-safe.
///
/// [Note: removal] A file system may take as long to free the blocks of a checkpoint as to write them. So save() gives
/// old checkpoints another name, which is at once, and a thread removes them. The next save waits for that thread
/// before it writes: a disk that had room for one checkpoint more has it again.
class Checkpointer {
 public:
  /// The parts have different names and one mesh; otherwise the constructor throws c10::Error.
  Checkpointer(std::vector<CheckpointPart> parts, CheckpointOptions options);
  /// One part, "model".
  Checkpointer(ShardedModel& model, Optimizer& optimizer, CheckpointOptions options);
  ~Checkpointer();
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  /// No save and no load while a model has its average weights (Optimizer::exchange_average): both throw c10::Error.
  ///
  /// Writes and commits a checkpoint, then begins to remove old ones: all but the newest `keep` and the checkpoint of
  /// step `also_keep`; see [Note: removal]. Nothing is removed before the commit. A checkpoint of the same step is
  /// replaced.
  /// Throws CheckpointError when any rank could not write (disk full, read-only, no permission), and CheckpointFenced
  /// when may_write or may_commit refused. The error is the same on every rank. After an error no new checkpoint is
  /// visible, and the temporary folder is removed as far as possible. Calls wait() first.
  SavedCheckpoint save(const CheckpointState& state, std::optional<std::int64_t> also_keep = std::nullopt);

  /// Begins to save, see [Note: saving beside the training]. Blocks for the copy. Later changes of the models are not
  /// in the checkpoint. Calls wait() first, so it throws what the save before threw, and then begins nothing. The first
  /// call also connects the ranks and allocates snapshot_bytes().
  void begin_save(const CheckpointState& state, std::optional<std::int64_t> also_keep = std::nullopt);
  /// The outcome of a begun save that has ended well, once. Nothing while the save is under way, when there is none,
  /// and when it has failed: wait() tells failures, so that all ranks learn of them at the same place. Does not block.
  /// Ranks may see the end of a save at different times.
  std::optional<SavedCheckpoint> poll();
  /// Waits for the begun save and returns its outcome, once. Nothing when there is none. Throws as save().
  std::optional<SavedCheckpoint> wait();
  /// Waits until the old checkpoints are removed that the last save() found. Returns, once, which could not be. Without
  /// this call the next save has them among its warnings. Not collective; only rank 0 removes.
  std::vector<std::string> wait_for_removal();
  /// Memory of the host that begin_save() keeps for its copies on this rank: the shards and their states, without
  /// segments of which nothing is saved. 0 before the first call, and on all but the first ranks along "replicate".
  std::int64_t snapshot_bytes() const;

  /// Loads the newest checkpoint that is whole on every rank, and passes over torn or corrupt ones. The world size and
  /// the units may differ from those of the run that wrote the checkpoint: each rank reads the slices that overlap its
  /// own, and compares the checksums of the blocks that hold them. Returns nullopt, fills `ignored` if given, and
  /// leaves the model unchanged when no checkpoint is whole. Throws CheckpointMismatch when the newest whole checkpoint
  /// has other parts, another model (names, shapes) or another optimizer (name, states), CheckpointTooNew when a later
  /// program has saved one that is newer than the newest whole one, and CheckpointError when the folder cannot be read.
  /// A part without an optimizer takes the weights of a part that was saved with one. Frozen parameters take the values
  /// in the dtype that they are kept in.
  std::optional<LoadedCheckpoint> load_latest(std::vector<std::string>* ignored = nullptr);
  /// Loads this very checkpoint in the same way, in any folder. Rank 0's `info` counts for all ranks. Throws
  /// CheckpointError when the checkpoint is not whole on every rank.
  LoadedCheckpoint load(const CheckpointInfo& info);

  /// Removes temporary folders that this attempt or earlier ones left behind. Call it once before training.
  void remove_stale();

 private:
  DeviceMesh& mesh() const;
  std::filesystem::path temporary(std::int64_t step) const;
  struct Taken;
  struct Committed;
  struct Background;
  bool writes() const;
  Taken take(const CheckpointState& state, std::optional<std::int64_t> also_keep, Snapshot* copies) const;
  /// An old checkpoint under its temporary name.
  struct Aside {
    std::filesystem::path was, is;
  };
  SavedCheckpoint save(const Taken& taken, Communicator& ranks, std::vector<Aside>& old);
  std::string write_files(const std::filesystem::path& folder, const Taken& taken, Communicator& ranks, Json& files);
  std::string begin(const std::filesystem::path& folder);
  Committed commit(const std::filesystem::path& from, const std::filesystem::path& to, const Json& manifest);
  std::vector<std::string> set_aside(const std::filesystem::path& newest, std::int64_t step,
                                     std::optional<std::int64_t> also_keep, std::vector<Aside>& old);
  static std::vector<std::string> remove(const std::vector<Aside>& old);
  std::optional<LoadedCheckpoint> try_load(const std::filesystem::path& path, std::int64_t step,
                                           std::vector<std::string>& passed_over);

  std::vector<CheckpointPart> parts_;
  CheckpointOptions options_;
  bool parents_synced_ = false;
  std::future<std::vector<std::string>> removal_;
  std::unique_ptr<Background> background_;  // from the first begin_save() on
};

}  // namespace fsdp
