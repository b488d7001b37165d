#include <fcntl.h>

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "fsdp/files/checkpoint.h"
#include "fsdp/files/checkpoint_manifest.h"
#include "fsdp/files/durable.h"
#include "fsdp/files/safetensors.h"
#include "fsdp/tracing/error_text.h"

namespace fsdp {

namespace fs = std::filesystem;

/// Copies of tensors in memory of the host, pinned for tensors of a GPU. The memory is kept for the next round, so only
/// the first round allocates. Not thread-safe, but the copies of a finished round may be read by any thread.
class Snapshot {
 public:
  /// Begins a round. Copies of the one before are overwritten.
  void begin() { taken_.swap(kept_), taken_.clear(), device_.reset(); }
  /// Begins to copy `tensor`. Returns the copy, which has its values after finish(). The `key` finds the memory of the
  /// round before.
  at::Tensor take(const std::string& key, const at::Tensor& tensor) {
    const at::NoGradGuard no_grad;
    at::Tensor copy = kept_[key];
    if (!copy.defined() || copy.sizes() != tensor.sizes() || copy.scalar_type() != tensor.scalar_type())
      copy = at::empty(tensor.sizes(), at::TensorOptions().dtype(tensor.scalar_type()).pinned_memory(tensor.is_cuda()));
    copy.copy_(tensor, /*non_blocking=*/true);
    if (!tensor.is_cpu()) device_ = tensor.device();
    taken_[key] = copy;
    return copy;
  }
  /// Waits for the copies of a GPU, and frees memory of keys that this round has not taken.
  void finish() {
    kept_.clear();
    if (device_) c10::impl::VirtualGuardImpl(device_->type()).getStream(*device_).synchronize();
  }

  /// Memory of the copies.
  std::int64_t bytes() const {
    std::int64_t bytes = 0;
    for (const auto& [key, copy] : taken_) bytes += static_cast<std::int64_t>(copy.nbytes());
    return bytes;
  }

 private:
  std::map<std::string, at::Tensor> taken_, kept_;
  std::optional<c10::Device> device_;
};

/// Values of a parameter, or of a state of it, as a checkpoint holds them.
struct TakenSlice {
  std::string key;
  at::Tensor values;
  at::ScalarType saved_dtype;
};

/// Data that a save takes of the run when it begins.
struct Checkpointer::Taken {
  std::int64_t step = 0;
  std::optional<std::int64_t> also_keep;
  Json manifest;  // without the list of files; on rank 0 alone
  std::vector<TakenSlice> slices;
  std::map<std::string, at::Tensor> own;
  std::string problem;  // why this rank could not take its part; empty for success
};

/// See [Note: saving beside the training].
struct Checkpointer::Background {
  std::unique_ptr<Communicator> ranks;
  Snapshot copies;
  std::shared_future<SavedCheckpoint> running;  // until its outcome is told
};

namespace {

// The first character of a failed commit's text tells all ranks the kind of failure.
constexpr char kFenced = 'F';
constexpr char kFailed = 'E';

/// True on the one rank that has a parameter's first element. It saves what all ranks have of the parameter.
bool holds_first(const Slice& slice) {
  return slice.length > 0 && slice.begin == 0;
}

/// Adds this rank's slices of a segment: views of its flat tensors, or of the tensors' copies. `where` names the
/// segment.
void add_slices(const CheckpointPart& part, Segment& segment, const std::string& where, Snapshot* copies,
                std::vector<TakenSlice>& slices) {
  const auto& parameters = segment.layout().parameters();
  const auto saved =
      std::find_if(parameters.begin(), parameters.end(), [&](const auto& one) { return part.saves(one); });
  if (saved == parameters.end()) return;
  TORCH_CHECK(!segment.is_quantised(), "checkpoint: parameter ", saved->name, " is kept in ",
              name_of(segment.key().format),
              ", and no checkpoint holds such; leave it out by CheckpointPart::saved, and load it from its own file");
  std::vector<std::pair<StateSpec, at::Tensor>> flats;
  flats.emplace_back("parameter", segment.shard());
  if (part.optimizer != nullptr && segment.key().has_master)
    for (const StateSpec& state : part.optimizer->states())
      flats.emplace_back(state, segment.state(state.name, state.form));
  if (copies != nullptr)
    for (auto& [state, flat] : flats) flat = copies->take(where + "/" + state.name, flat);
  for (const ParameterInfo& parameter : parameters) {
    if (!part.saves(parameter)) continue;
    for (const auto& [state, flat] : flats) {
      const Slice slice = segment.layout().own_state(state.form, parameter);
      const bool is_here = !state.form.replicated || holds_first(segment.layout().own(parameter));
      if (slice.length > 0 && is_here)
        slices.push_back({part.name + "/" + state.name + "/" + parameter.name, slice.in(flat), state.form.dtype});
    }
  }
}

/// Writes a rank's file: its slices, of which parameters are converted to fp32 one at a time, and its own tensors as
/// they are.
WrittenFile write_rank(const fs::path& path, const std::vector<TakenSlice>& slices,
                       const std::map<std::string, at::Tensor>& own, std::int64_t block_bytes) {
  std::vector<TensorPlan> plan;
  for (const auto& [key, slice, dtype] : slices) plan.push_back({key, dtype, slice.sizes().vec()});
  for (const auto& [key, tensor] : own)
    plan.push_back({std::string(kRankTensors) + "/" + key, tensor.scalar_type(), tensor.sizes().vec()});
  SafetensorsWriter writer(path, plan, {}, block_bytes);
  for (const auto& [key, slice, dtype] : slices) writer.append(slice.to(dtype));
  for (const auto& [key, tensor] : own) writer.append(tensor);
  return writer.finish();
}

std::string not_removed(const fs::path& old, const std::string& problem) {
  return "old checkpoint " + old.string() + " not removed: " + problem;
}

}  // namespace

Checkpointer::Checkpointer(std::vector<CheckpointPart> parts, CheckpointOptions options)
    : parts_(std::move(parts)), options_(std::move(options)) {
  TORCH_CHECK(options_.keep >= 1, "checkpoints: keep ", options_.keep, ": want 1 or more");
  TORCH_CHECK(!options_.folder.empty(), "checkpoints: no folder");
  TORCH_CHECK(options_.block_bytes >= 1, "checkpoints: blocks of ", options_.block_bytes, " bytes: want 1 or more");
  TORCH_CHECK(!parts_.empty(), "checkpoints: no parts");
  std::set<std::string> names{kRankTensors};
  for (const CheckpointPart& part : parts_) {
    const bool plain = !part.name.empty() && part.name.find('/') == std::string::npos;
    TORCH_CHECK(plain && names.insert(part.name).second, "checkpoints: part \"", part.name,
                "\": want a name without \"/\" that no other part has, and not \"", kRankTensors, "\"");
    TORCH_CHECK(&part.model.mesh() == &mesh(), "checkpoints: part ", part.name, " is on another mesh than part ",
                parts_.front().name, "; want one mesh");
  }
}

Checkpointer::Checkpointer(ShardedModel& model, Optimizer& optimizer, CheckpointOptions options)
    : Checkpointer({{"model", model, &optimizer}}, std::move(options)) {}

DeviceMesh& Checkpointer::mesh() const {
  return parts_.front().model.mesh();
}

fs::path Checkpointer::temporary(std::int64_t step) const {
  return options_.folder / (kTemporaryPrefix + step_name(step) + kAttemptMark + std::to_string(options_.attempt));
}

struct Checkpointer::Committed {
  std::string problem;  // empty for success, otherwise kFenced or kFailed and the reason
  /// The folder under the temporary name, if any, belongs to this save and not to another attempt.
  bool ours = true;
};

/// A failure is in the result, because the other ranks begin the save, and the ranks agree on failures there. `copies`
/// null: the slices are views of the models.
Checkpointer::Taken Checkpointer::take(const CheckpointState& state, std::optional<std::int64_t> also_keep,
                                       Snapshot* copies) const {
  TORCH_CHECK(!options_.some_parts && !options_.some_parameters,
              "checkpoints: a run that loads some parts of a checkpoint cannot save, because the other parts would be "
              "lost; make a Checkpointer without some_parts and some_parameters");
  for (const CheckpointPart& part : parts_)
    if (part.optimizer != nullptr) part.optimizer->check_own_weights("a save");
  Taken taken;
  taken.step = state.step;
  taken.also_keep = also_keep;
  taken.problem = failure_of([&] {
    if (mesh().rank() == 0) taken.manifest = make_manifest(parts_, state, options_.attempt);
    if (!writes()) return;
    for (const CheckpointPart& part : parts_) {
      std::size_t number = 0;
      for (const auto& unit : part.model.units())
        for (const auto& segment : unit->segments())
          add_slices(part, *segment, part.name + "/" + std::to_string(number++), copies, taken.slices);
    }
    for (const auto& [key, tensor] : state.rank_tensors)
      taken.own[key] = copies == nullptr ? tensor : tensor.detach().to(at::kCPU, tensor.scalar_type(), false, true);
  });
  return taken;
}

/// Replicas hold the same, so the first one's ranks write.
bool Checkpointer::writes() const {
  return mesh().replicate() == nullptr || mesh().replicate()->rank() == 0;
}

SavedCheckpoint Checkpointer::save(const CheckpointState& state, std::optional<std::int64_t> also_keep) {
  wait();
  const std::vector<std::string> before = wait_for_removal();
  std::vector<Aside> old;
  SavedCheckpoint saved = save(take(state, also_keep, nullptr), mesh().control(), old);
  saved.warnings.insert(saved.warnings.begin(), before.begin(), before.end());
  // Where no thread can be started, wait_for_removal() removes.
  if (!old.empty())
    removal_ = std::async(std::launch::async | std::launch::deferred, [old = std::move(old)] { return remove(old); });
  return saved;
}

std::vector<std::string> Checkpointer::wait_for_removal() {
  return removal_.valid() ? removal_.get() : std::vector<std::string>();
}

SavedCheckpoint Checkpointer::save(const Taken& taken, Communicator& ranks, std::vector<Aside>& old) {
  const bool first = ranks.rank() == 0;
  const fs::path target = options_.folder / step_name(taken.step);
  const fs::path folder = temporary(taken.step);

  std::string problem = ranks.broadcast(first ? begin(folder) : std::string());
  // True if the temporary folder may be removed. A refusal at the beginning leaves an existing folder alone.
  bool ours = problem.empty() || problem.front() != kFenced;
  Json files;
  if (problem.empty()) {
    problem = write_files(folder, taken, ranks, files);
    if (!problem.empty()) problem.insert(problem.begin(), kFailed);
  }
  if (problem.empty()) {
    Committed committed;
    if (first) {
      Json manifest = taken.manifest;
      manifest["files"] = files;
      committed = commit(folder, target, manifest);
      ours = committed.ours;
    }
    problem = ranks.broadcast(committed.problem);
  }
  if (!problem.empty()) {
    std::error_code ignored;
    if (first && ours) fs::remove_all(folder, ignored);
    const std::string text = "checkpoint of step " + std::to_string(taken.step) + " not saved: " + problem.substr(1);
    if (problem.front() == kFenced) throw CheckpointFenced(text);
    throw CheckpointError(text);
  }

  SavedCheckpoint saved;
  saved.path = target;
  for (const Json& file : files.as_array()) saved.bytes += file.at("bytes").as_int();
  if (first) saved.warnings = set_aside(target, taken.step, taken.also_keep, old);
  return saved;
}

/// Makes the temporary folder on rank 0. Returns an empty text for success, otherwise kFenced or kFailed and the
/// reason.
std::string Checkpointer::begin(const fs::path& folder) {
  std::string refusal;
  const std::string problem = failure_of([&] {
    if (options_.may_write) refusal = options_.may_write();
    if (!refusal.empty()) return;
    fs::create_directories(options_.folder);
    if (!parents_synced_) sync_parents(options_.folder);
    parents_synced_ = true;
    fs::remove_all(folder);
    fs::create_directory(folder);
  });
  if (!problem.empty()) return kFailed + ("rank 0: " + problem);
  return refusal.empty() ? refusal : kFenced + refusal;
}

/// Writes this rank's file and fills `files` with the sizes and checksums of all ranks' files. Returns the failure of
/// the lowest failing rank, or an empty text.
std::string Checkpointer::write_files(const fs::path& folder, const Taken& taken, Communicator& ranks, Json& files) {
  const Communicator& shards = mesh().shard();
  WrittenFile written;
  std::string mine = taken.problem;
  if (mine.empty())
    mine = failure_of([&] {
      if (writes())
        written = write_rank(folder / file_name(shards.rank(), shards.world_size()), taken.slices, taken.own,
                             options_.block_bytes);
    });
  const std::string problem = ranks.agree(mine);
  if (!problem.empty()) return problem;

  // A row for each file: bytes, header, and the checksums of its blocks.
  const auto most =
      static_cast<std::int64_t>(ranks.all_reduce(static_cast<double>(written.blocks.size()), Reduction::kMax));
  constexpr std::int64_t kFixed = 4;
  at::Tensor table = at::zeros({shards.world_size(), kFixed + most}, at::kLong);
  auto* row = table.mutable_data_ptr<std::int64_t>() + shards.rank() * table.size(1);
  if (writes()) {
    row[0] = written.bytes;
    row[1] = written.header_bytes;
    row[2] = written.header_checksum;
    row[3] = static_cast<std::int64_t>(written.blocks.size());
    std::copy(written.blocks.begin(), written.blocks.end(), row + kFixed);
  }
  ranks.all_reduce(table);
  for (int rank = 0; rank < shards.world_size(); ++rank) {
    row = table.mutable_data_ptr<std::int64_t>() + rank * table.size(1);
    WrittenFile file{row[0], row[1], static_cast<std::uint32_t>(row[2]), options_.block_bytes, {}};
    file.blocks.assign(row + kFixed, row + kFixed + row[3]);
    files.push_back(json_of(file_name(rank, shards.world_size()), file));
  }
  return {};
}

/// The part of [Note: commit] that rank 0 does after all ranks have written their files.
Checkpointer::Committed Checkpointer::commit(const fs::path& from, const fs::path& to, const Json& manifest) {
  struct Over {
    const std::function<void()>& call;
    ~Over() {
      if (call) call();
    }
  } const over{options_.commit_over};
  Committed out;
  std::string refusal;
  std::optional<Identity> own;  // set right before the publication
  const std::string problem = failure_of([&] {
    write_text(from / kManifest, summed_text(manifest));
    sync_path(from, O_RDONLY | O_DIRECTORY);
    if (options_.may_commit) refusal = options_.may_commit();
    if (!refusal.empty()) return;
    own = identity_of(from);
    const fs::path before = publish_folder(from, to);
    if (options_.may_write) refusal = options_.may_write();
    if (!refusal.empty()) {
      withdraw_folder(from, to, before, own);
    } else if (!before.empty()) {
      fs::remove_all(before);
    }
    sync_path(to.parent_path(), O_RDONLY | O_DIRECTORY);
  });
  out.ours = !own || identity_of(from) == own;
  // A refusal counts before any other failure, because a fenced attempt must not try again.
  if (!refusal.empty()) {
    out.problem = kFenced + refusal + (problem.empty() ? "" : "; " + problem);
  } else if (!problem.empty()) {
    out.problem = kFailed + problem;
  }
  return out;
}

/// Renames old checkpoints, and adds them to `old`: all but the newest `keep` up to `step` and the checkpoint of step
/// `also_keep`. Later checkpoints belong to a run that this run went back behind; they stay.
std::vector<std::string> Checkpointer::set_aside(const fs::path& newest, std::int64_t step,
                                                 std::optional<std::int64_t> also_keep, std::vector<Aside>& old) {
  std::vector<std::string> warnings;
  int kept = 1;
  CheckpointList list;
  const std::string unlisted = failure_of([&] { list = list_checkpoints(options_.folder); });
  if (!unlisted.empty()) warnings.push_back("old checkpoints not removed: " + unlisted);
  for (const CheckpointInfo& found : list.valid) {
    if (found.step > step || found.path.filename() == newest.filename() || kept++ < options_.keep) continue;
    if (found.step == also_keep) continue;
    // Much time may have passed since the commit.
    if (options_.may_write && !options_.may_write().empty()) break;
    // The rename comes first, so that a crash during the removal does not leave a torn checkpoint.
    const Aside aside{found.path, temporary(found.step)};
    const std::string problem = failure_of([&] { fs::rename(aside.was, aside.is); });
    if (problem.empty()) {
      old.push_back(aside);
    } else {
      warnings.push_back(not_removed(aside.was, problem));
    }
  }
  return warnings;
}

std::vector<std::string> Checkpointer::remove(const std::vector<Aside>& old) {
  std::vector<std::string> warnings;
  for (const Aside& aside : old) {
    const std::string problem = failure_of([&] { fs::remove_all(aside.is); });
    if (!problem.empty()) warnings.push_back(not_removed(aside.was, problem));
  }
  return warnings;
}

void Checkpointer::remove_stale() {
  Communicator& ranks = mesh().control();
  const std::string problem = ranks.agree(failure_of([&] {
    if (ranks.rank() != 0 || !fs::exists(options_.folder)) return;
    std::vector<fs::path> stale;
    for (const auto& entry : fs::directory_iterator(options_.folder)) {
      const std::string name = entry.path().filename().string();
      const auto attempt = number_after(name, kAttemptMark);
      if (name.rfind(kTemporaryPrefix, 0) == 0 && attempt && *attempt <= options_.attempt)
        stale.push_back(entry.path());
    }
    for (const fs::path& path : stale) fs::remove_all(path);
  }));
  if (!problem.empty()) throw CheckpointError("leftovers in " + options_.folder.string() + " not removed: " + problem);
}

// The thread uses all members, so it ends before they go.
Checkpointer::~Checkpointer() {
  if (background_ && background_->running.valid()) background_->running.wait();
}

void Checkpointer::begin_save(const CheckpointState& state, std::optional<std::int64_t> also_keep) {
  wait();
  if (!background_) background_ = std::make_unique<Background>(Background{mesh().make_control(), {}, {}});
  background_->copies.begin();
  auto taken = std::make_shared<Taken>(take(state, also_keep, &background_->copies));
  const std::string late = failure_of([&] { background_->copies.finish(); });
  if (taken->problem.empty()) taken->problem = late;
  auto save_beside = [this, taken, removal = std::move(removal_)]() mutable {
    const at::NoGradGuard no_grad;
    std::vector<std::string> warnings;
    if (removal.valid()) warnings = removal.get();
    std::vector<Aside> old;
    SavedCheckpoint saved = save(*taken, *background_->ranks, old);
    for (std::string& text : saved.warnings) warnings.push_back(std::move(text));
    for (std::string& text : remove(old)) warnings.push_back(std::move(text));
    saved.warnings = std::move(warnings);
    return saved;
  };
  background_->running = std::async(std::launch::async, std::move(save_beside)).share();
}

std::optional<SavedCheckpoint> Checkpointer::poll() {
  if (!background_) return {};
  auto& running = background_->running;
  if (!running.valid() || running.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return {};
  try {
    SavedCheckpoint saved = running.get();
    running = {};
    return saved;
  } catch (const std::exception&) {
    return {};  // wait() tells it
  }
}

std::optional<SavedCheckpoint> Checkpointer::wait() {
  if (!background_ || !background_->running.valid()) return {};
  return std::exchange(background_->running, {}).get();
}

std::int64_t Checkpointer::snapshot_bytes() const {
  return background_ ? background_->copies.bytes() : 0;
}

}  // namespace fsdp
