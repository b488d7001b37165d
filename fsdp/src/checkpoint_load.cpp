#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <memory>
#include <set>

#include "checkpoint_folder.h"
#include "checkpoint_manifest.h"
#include "fsdp/checkpoint.h"
#include "fsdp/safetensors.h"

namespace fsdp {

namespace fs = std::filesystem;

namespace {

/// An opened checkpoint. Opens only the files that this rank needs.
class Source {
 public:
  Source(const CheckpointInfo& info, bool checksums)
      : info_(info), checksums_(checksums), parts_(parse_parts(info.manifest)) {}

  const std::map<std::string, SavedPart>& parts() const { return parts_; }

  /// The file of `rank`, opened and checked at the first call.
  const SafetensorsReader& file(int rank) {
    auto& reader = files_[rank];
    if (reader) return *reader;
    const std::string name = file_name(rank, info_.world_size);
    auto opened = std::make_unique<SafetensorsReader>(info_.path / name);
    const Json& listed = info_.manifest.at("files").as_array().at(rank);
    if (checksums_ && static_cast<std::int64_t>(opened->checksum()) != listed.at("crc32c").as_int())
      fail(name + " is corrupt: its checksum is not the manifest's");
    reader = std::move(opened);
    return *reader;
  }

  /// One saved slice, 1-D fp32.
  at::Tensor slice(const std::string& key, const SavedSlice& slice) {
    const at::Tensor tensor = file(slice.rank).tensor(key);
    if (tensor.scalar_type() != at::kFloat || tensor.dim() != 1 || tensor.numel() != slice.length)
      fail(file_name(slice.rank, info_.world_size) + ": " + key + " has another dtype or shape than the manifest says");
    return tensor;
  }

  /// Calls `use(saved part, offset in the wanted slice)` for every saved piece of `wanted`.
  template <typename Use>
  void overlap(const std::string& key, const SavedTensor& tensor, const Slice& wanted, const Use& use) {
    for (const SavedSlice& saved : tensor.slices) {
      const std::int64_t first = std::max(saved.begin, wanted.begin);
      const std::int64_t last = std::min(saved.begin + saved.length, wanted.begin + wanted.length);
      if (first < last) use(slice(key, saved).narrow(0, first - saved.begin, last - first), first - wanted.begin);
    }
  }

 private:
  const CheckpointInfo& info_;
  bool checksums_;
  std::map<std::string, SavedPart> parts_;
  std::map<int, std::unique_ptr<SafetensorsReader>> files_;
};

[[noreturn]] void mismatch(const CheckpointInfo& info, const std::string& how) {
  throw CheckpointMismatch(info.path.string() + " " + how);
}

void check_same_model(const CheckpointInfo& info, const CheckpointPart& part, const SavedPart& saved) {
  const auto of_another_model = [&](const std::string& how) {
    mismatch(info, "is of another " + part.name + ": " + how);
  };
  std::set<std::string> names;
  for (const auto& unit : part.model.units()) {
    for (const auto& segment : unit->segments()) {
      for (const ParameterInfo& parameter : segment->layout().parameters()) {
        names.insert(parameter.name);
        const auto found = saved.tensors.find(parameter.name);
        if (found == saved.tensors.end()) of_another_model("it has no parameter " + parameter.name);
        if (found->second.shape != parameter.shape) of_another_model(parameter.name + " has another shape there");
      }
    }
  }
  for (const auto& [name, tensor] : saved.tensors)
    if (names.count(name) == 0) of_another_model("this one has no parameter " + name);
}

std::string list_of(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list.empty() ? "none" : list;
}

void check_same_optimizer(const CheckpointInfo& info, const CheckpointPart& part, const SavedPart& saved) {
  if (part.optimizer == nullptr) return;  // the weights alone are wanted
  const std::string own = "this run has " + part.optimizer->name() + " for its " + part.name;
  if (!saved.optimizer) mismatch(info, "was saved without an optimizer, and " + own);
  if (saved.optimizer->name != part.optimizer->name())
    mismatch(info, "was saved with the optimizer " + saved.optimizer->name + ", and " + own);
  if (saved.optimizer->states != part.optimizer->state_names())
    mismatch(info, "was saved with the optimizer " + saved.optimizer->name + " of states " +
                       list_of(saved.optimizer->states) + ", and " + own + " of states " +
                       list_of(part.optimizer->state_names()));
}

/// Throws CheckpointMismatch when parts, names, shapes or optimizers differ. All ranks throw or none, because the check
/// depends on manifest and parts alone.
void check_same_parts(const CheckpointInfo& info, const std::map<std::string, SavedPart>& saved,
                      const std::vector<CheckpointPart>& parts) {
  std::set<std::string> names;
  for (const CheckpointPart& part : parts) {
    names.insert(part.name);
    const auto found = saved.find(part.name);
    if (found == saved.end()) mismatch(info, "has no part " + part.name + ", which this run has");
    check_same_model(info, part, found->second);
    check_same_optimizer(info, part, found->second);
  }
  for (const auto& [name, part] : saved)
    if (names.count(name) == 0) mismatch(info, "has a part " + name + ", which this run does not have");
}

/// Calls `visit(key, saved tensor, wanted slice, flat destination tensor)` for everything that this rank must read.
template <typename Visit>
void for_each_wanted(const std::vector<CheckpointPart>& parts, const Source& source, const Visit& visit) {
  for (const CheckpointPart& part : parts) {
    const SavedPart& saved_part = source.parts().at(part.name);
    for (const auto& unit : part.model.units()) {
      for (const auto& segment : unit->segments()) {
        for (const ParameterInfo& parameter : segment->layout().parameters()) {
          const Slice slice = segment->layout().own(parameter);
          if (slice.length == 0) continue;
          const SavedTensor& saved = saved_part.tensors.at(parameter.name);
          visit(saved_part.prefix + "parameter/" + parameter.name, saved, slice, segment->shard());
          if (part.optimizer == nullptr || !segment->key().has_master || !saved.trainable) continue;
          for (const std::string& state : part.optimizer->state_names())
            visit(saved_part.prefix + state + "/" + parameter.name, saved, slice, segment->state(state));
        }
      }
    }
  }
}

void forget_states(const CheckpointPart& part) {
  for (const auto& unit : part.model.units())
    for (const auto& segment : unit->segments())
      for (const auto& [name, state] : segment->states()) state.zero_();
}

void load_steps(const CheckpointPart& part, const SavedPart& saved) {
  if (part.optimizer == nullptr) return;
  part.optimizer->set_steps(saved.optimizer->steps);
  Optimizer::StepCounts counts = part.optimizer->parameter_steps();
  for (std::size_t i = 0; i < part.model.units().size(); ++i)
    for (const auto& segment : part.model.units()[i]->segments())
      for (const ParameterInfo& p : segment->layout().parameters())
        counts[i][p.index] = segment->key().has_master ? saved.tensors.at(p.name).steps : 0;
  part.optimizer->set_parameter_steps(counts);
}

}  // namespace

std::optional<LoadedCheckpoint> Checkpointer::load_latest(std::vector<std::string>* ignored) {
  Communicator& ranks = mesh().control();
  // Rank 0 lists the checkpoints for all ranks. A network file system may show ranks different folders, and all must
  // try the same ones.
  CheckpointList list;
  const std::string unlisted = ranks.agree(failure_of([&] {
    if (ranks.rank() == 0) list = list_checkpoints(options_.folder);
  }));
  if (!unlisted.empty()) fail(unlisted);
  Json found;
  found["ignored"] = Json::Array(list.ignored.begin(), list.ignored.end());
  found["steps"] = Json::Array();
  for (const CheckpointInfo& info : list.valid) found["steps"].push_back(info.step);
  found = Json::parse(ranks.broadcast(found.dump()));

  std::vector<std::string> passed_over;
  for (const Json& reason : found.at("ignored").as_array()) passed_over.push_back(reason.as_string());
  std::optional<LoadedCheckpoint> loaded;
  for (const Json& step : found.at("steps").as_array()) {
    const std::string name = step_name(step.as_int());
    loaded = try_load(options_.folder / name, step.as_int(), passed_over);
    if (loaded) break;
  }
  if (loaded) loaded->ignored = passed_over;
  if (ignored != nullptr) *ignored = std::move(passed_over);
  return loaded;
}

/// Loads a checkpoint if it is whole on every rank; otherwise adds the reason to `passed_over`. All ranks check
/// everything before any rank changes its model.
std::optional<LoadedCheckpoint> Checkpointer::try_load(const fs::path& path, std::int64_t step,
                                                       std::vector<std::string>& passed_over) {
  const at::NoGradGuard no_grad;
  Communicator& ranks = mesh().control();
  const Communicator& shards = mesh().shard();
  CheckpointInfo info;
  std::optional<Source> source;
  std::string problem = ranks.agree(failure_of([&] {
    info = inspect(path, step);
    source.emplace(info, options_.verify_checksums);
  }));
  if (problem.empty()) {
    check_same_parts(info, source->parts(), parts_);
    problem = ranks.agree(failure_of([&] {
      if (info.world_size == shards.world_size()) source->file(shards.rank());
      for_each_wanted(parts_, *source, [&](const auto& key, const auto& saved, const auto& wanted, auto&) {
        source->overlap(key, saved, wanted, [](const at::Tensor&, std::int64_t) {});
      });
    }));
  }
  if (!problem.empty()) {
    passed_over.push_back(path.filename().string() + ": " + problem);
    return {};
  }

  for (const CheckpointPart& part : parts_) {
    part.model.await_copies();
    forget_states(part);
  }
  for_each_wanted(parts_, *source,
                  [&](const auto& key, const auto& saved, const Slice& wanted, const at::Tensor& flat) {
                    source->overlap(key, saved, wanted, [&](const at::Tensor& part, std::int64_t offset) {
                      flat.narrow(0, wanted.shard_offset + offset, part.numel()).copy_(part);
                    });
                  });
  for (const CheckpointPart& part : parts_) {
    for (const auto& unit : part.model.units()) unit->shard_changed();
    load_steps(part, source->parts().at(part.name));
  }

  LoadedCheckpoint loaded;
  loaded.path = info.path;
  loaded.world_size = info.world_size;
  loaded.state.step = info.step;
  loaded.state.extra = info.manifest.at("extra");
  if (info.world_size == shards.world_size()) {
    const std::string prefix = std::string(kRankTensors) + "/";
    const SafetensorsReader& own = source->file(shards.rank());
    for (const auto& [key, entry] : own.entries())
      if (key.rfind(prefix, 0) == 0) loaded.state.rank_tensors[key.substr(prefix.size())] = own.tensor(key).clone();
  }
  return loaded;
}

}  // namespace fsdp
