#include "fsdp/checkpoint.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "durable.h"
#include "fsdp/safetensors.h"

namespace fsdp {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "muster-checkpoint";
constexpr std::int64_t kVersion = 1;
constexpr const char* kManifest = "manifest.json";
constexpr const char* kStepPrefix = "step-";
constexpr const char* kAttemptMark = "-attempt-";
constexpr std::int64_t kMaxManifestBytes = 256 << 20;
constexpr std::int64_t kMostRanks = 1 << 20;
// The first character of a failed commit's text tells all ranks the kind of failure.
constexpr char kFenced = 'F';
constexpr char kFailed = 'E';

std::string padded(const char* format, std::int64_t a, std::int64_t b = 0) {
  char text[96];
  std::snprintf(text, sizeof text, format, static_cast<long long>(a), static_cast<long long>(b));
  return text;
}

std::string step_name(std::int64_t step) {
  return padded("step-%08lld", step);
}

std::string file_name(int rank, int world_size) {
  return padded("rank-%05lld-of-%05lld.safetensors", rank, world_size);
}

std::optional<std::int64_t> number_after(std::string_view text, std::string_view mark) {
  const auto at = text.rfind(mark);
  if (at == std::string_view::npos) return {};
  const char* first = text.data() + at + mark.size();
  const char* last = text.data() + text.size();
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(first, last, number);
  if (error != std::errc() || end != last || first == last || number < 0) return {};
  return number;
}

[[noreturn]] void fail(const std::string& text) {
  throw CheckpointError(text);
}

std::string read_text(const fs::path& path, std::int64_t limit) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error) fail("no " + path.filename().string());
  if (static_cast<std::int64_t>(bytes) > limit) fail(path.filename().string() + " is larger than any manifest");
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) fail("cannot read " + path.filename().string());
  return text.str();
}

/// Identifies the folder behind a name. Another attempt may have renamed its own folder to that name.
struct Identity {
  ::dev_t device = 0;
  ::ino_t inode = 0;
  bool operator==(const Identity&) const = default;
};

std::optional<Identity> identity_of(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return {};
  return Identity{info.st_dev, info.st_ino};
}

/// Undoes publish_folder(from, to), which returned `before`. `own` is at `from` again afterwards. A newer attempt may
/// replace the folder at any moment, even between two lines of this function. The newer attempt's folder then stays at
/// `to`.
void withdraw_folder(const fs::path& from, const fs::path& to, const fs::path& before,
                     const std::optional<Identity>& own) {
  if (identity_of(to) != own) return;
  if (before == from) {
    if (!exchange(from, to)) fail("cannot put back " + to.string() + ": " + std::strerror(errno));
    if (identity_of(from) != own) exchange(from, to);
    return;
  }
  fs::rename(to, from);
  if (identity_of(from) != own) {
    fs::rename(from, to);
  } else if (!before.empty()) {
    fs::rename(before, to);
  }
}

// Reading back.

CheckpointInfo inspect(const fs::path& path, std::int64_t step) {
  CheckpointInfo info;
  info.path = path;
  info.step = step;
  info.manifest = Json::parse(read_text(path / kManifest, kMaxManifestBytes));
  const Json& manifest = info.manifest;
  if (manifest.at("format").as_string() != kFormat) fail("manifest is of another format");
  if (manifest.at("version").as_int() != kVersion)
    fail("format version " + manifest.at("version").dump() + ", this program reads " + std::to_string(kVersion));
  if (manifest.at("step").as_int() != step) fail("manifest is of step " + manifest.at("step").dump());
  const std::int64_t ranks = manifest.at("world_size").as_int();
  if (ranks < 1 || ranks > kMostRanks) fail("manifest is of " + std::to_string(ranks) + " ranks");
  info.world_size = static_cast<int>(ranks);
  info.attempt = manifest.at("attempt").as_int();
  const Json::Array& files = manifest.at("files").as_array();
  if (files.size() != static_cast<std::size_t>(info.world_size))
    fail("manifest lists " + std::to_string(files.size()) + " files for " + std::to_string(info.world_size) + " ranks");
  for (int rank = 0; rank < info.world_size; ++rank) {
    const std::string name = file_name(rank, info.world_size);
    if (files[rank].at("name").as_string() != name) fail("manifest lists another file for " + name);
    std::error_code error;
    const auto bytes = fs::file_size(path / name, error);
    if (error) fail("no " + name);
    const std::int64_t want = files[rank].at("bytes").as_int();
    if (static_cast<std::int64_t>(bytes) != want)
      fail(name + " has " + std::to_string(bytes) + " bytes, the manifest says " + std::to_string(want));
    info.bytes += want;
  }
  // A load reads these members later. Checking them here makes a manifest without them count as torn.
  const std::int64_t steps = manifest.at("optimizer").at("steps").as_int();
  if (steps < 0) fail("manifest: " + std::to_string(steps) + " optimizer steps");
  manifest.at("tensors").as_object();
  manifest.at("extra");
  return info;
}

/// One rank's saved part of a tensor.
struct SavedSlice {
  int rank;
  std::int64_t begin;
  std::int64_t length;
};

struct SavedTensor {
  std::vector<std::int64_t> shape;
  bool trainable = true;
  std::int64_t steps = 0;  // optimizer updates of this tensor
  std::vector<SavedSlice> slices;
};

/// `default_steps` is the optimizer's step count. A manifest without step counts per tensor used it for all tensors.
SavedTensor parse_tensor(const Json& json, int world_size, std::int64_t default_steps) {
  SavedTensor tensor;
  std::int64_t numel = 1;
  for (const Json& dim : json.at("shape").as_array()) {
    tensor.shape.push_back(dim.as_int());
    if (tensor.shape.back() < 0 || __builtin_mul_overflow(numel, tensor.shape.back(), &numel))
      fail("manifest: impossible shape");
  }
  tensor.trainable = json.at("trainable").as_bool();
  const Json* steps = json.find("steps");
  if (tensor.trainable) tensor.steps = steps != nullptr ? steps->as_int() : default_steps;
  if (tensor.steps < 0) fail("manifest: " + std::to_string(tensor.steps) + " optimizer steps of a tensor");
  std::int64_t covered = 0;
  for (const Json& slice : json.at("slices").as_array()) {
    const Json::Array& numbers = slice.as_array();
    if (numbers.size() != 3) fail("manifest: a slice wants rank, begin and length");
    const std::int64_t rank = numbers[0].as_int();
    if (rank < 0 || rank >= world_size) fail("manifest: a slice of rank " + std::to_string(rank));
    const SavedSlice saved{static_cast<int>(rank), numbers[1].as_int(), numbers[2].as_int()};
    if (saved.begin != covered || saved.length <= 0 || saved.length > numel - covered)
      fail("manifest: slices of a tensor have holes or overlap");
    covered += saved.length;
    tensor.slices.push_back(saved);
  }
  if (covered != numel) fail("manifest: slices of a tensor do not cover it");
  return tensor;
}

/// An opened checkpoint. Opens only the files that this rank needs.
class Source {
 public:
  Source(const CheckpointInfo& info, bool checksums) : info_(info), checksums_(checksums) {
    const std::int64_t steps = info.manifest.at("optimizer").at("steps").as_int();
    for (const auto& [name, json] : info.manifest.at("tensors").as_object())
      tensors_[name] = parse_tensor(json, info.world_size, steps);
  }

  const std::map<std::string, SavedTensor>& tensors() const { return tensors_; }

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
  std::map<std::string, SavedTensor> tensors_;
  std::map<int, std::unique_ptr<SafetensorsReader>> files_;
};

[[noreturn]] void of_another_model(const CheckpointInfo& info, const std::string& how) {
  throw CheckpointMismatch(info.path.string() + " is of another model: " + how);
}

/// Throws CheckpointMismatch when names or shapes differ. All ranks throw or none, because the check depends on
/// manifest and model alone.
void check_same_model(const CheckpointInfo& info, const std::map<std::string, SavedTensor>& tensors,
                      ShardedModel& model) {
  std::set<std::string> names;
  for (const auto& unit : model.units()) {
    for (const auto& segment : unit->segments()) {
      for (const ParameterInfo& parameter : segment->layout().parameters()) {
        names.insert(parameter.name);
        const auto found = tensors.find(parameter.name);
        if (found == tensors.end()) of_another_model(info, "it has no parameter " + parameter.name);
        if (found->second.shape != parameter.shape) of_another_model(info, parameter.name + " has another shape there");
      }
    }
  }
  for (const auto& [name, tensor] : tensors)
    if (names.count(name) == 0) of_another_model(info, "this one has no parameter " + name);
}

constexpr const char* kStates[] = {"exp_avg", "exp_avg_sq"};

/// Calls `visit(key, saved tensor, wanted slice, flat destination tensor)` for everything that this rank must read.
template <typename Visit>
void for_each_wanted(ShardedModel& model, Source& source, const Visit& visit) {
  for (const auto& unit : model.units()) {
    for (const auto& segment : unit->segments()) {
      for (const ParameterInfo& parameter : segment->layout().parameters()) {
        const Slice slice = segment->layout().own(parameter);
        if (slice.length == 0) continue;
        const SavedTensor& saved = source.tensors().at(parameter.name);
        visit("parameter/" + parameter.name, saved, slice, segment->shard());
        if (!segment->key().has_master || !saved.trainable) continue;
        for (const char* state : kStates)
          visit(std::string(state) + "/" + parameter.name, saved, slice, segment->state(state));
      }
    }
  }
}

void load_steps(ShardedModel& model, Optimizer& optimizer, const Source& source, std::int64_t calls) {
  optimizer.set_steps(calls);
  Optimizer::StepCounts counts = optimizer.parameter_steps();
  for (std::size_t i = 0; i < model.units().size(); ++i)
    for (const auto& segment : model.units()[i]->segments())
      for (const ParameterInfo& p : segment->layout().parameters())
        counts[i][p.index] = segment->key().has_master ? source.tensors().at(p.name).steps : 0;
  optimizer.set_parameter_steps(counts);
}

}  // namespace

CheckpointList list_checkpoints(const fs::path& folder) {
  CheckpointList list;
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const auto step = number_after(name, kStepPrefix);
    if (step && name == step_name(*step)) found.emplace_back(*step, entry->path());
  }
  if (error && error != std::errc::no_such_file_or_directory)
    fail("cannot list the checkpoints in " + folder.string() + ": " + error.message());
  std::sort(found.rbegin(), found.rend());
  for (const auto& [step, path] : found) {
    const std::string problem = failure_of([&] { list.valid.push_back(inspect(path, step)); });
    if (!problem.empty()) list.ignored.push_back(path.filename().string() + ": " + problem);
  }
  return list;
}

std::optional<CheckpointInfo> latest_valid(const fs::path& folder) {
  CheckpointList list = list_checkpoints(folder);
  if (list.valid.empty()) return {};
  return std::move(list.valid.front());
}

Checkpointer::Checkpointer(ShardedModel& model, Optimizer& optimizer, CheckpointOptions options)
    : model_(model), optimizer_(optimizer), options_(std::move(options)) {
  TORCH_CHECK(options_.keep >= 1, "checkpoints: keep ", options_.keep, ": want 1 or more");
  TORCH_CHECK(!options_.folder.empty(), "checkpoints: no folder");
}

fs::path Checkpointer::temporary(std::int64_t step) const {
  return options_.folder / (kTemporaryPrefix + step_name(step) + kAttemptMark + std::to_string(options_.attempt));
}

struct Checkpointer::Committed {
  std::string problem;  // empty for success, otherwise kFenced or kFailed and the reason
  /// The folder under the temporary name, if any, belongs to this save and not to another attempt.
  bool ours = true;
};

SavedCheckpoint Checkpointer::save(const CheckpointState& state, std::optional<std::int64_t> also_keep) {
  Communicator& ranks = model_.mesh().shard();
  const bool first = ranks.rank() == 0;
  const fs::path target = options_.folder / step_name(state.step);
  const fs::path folder = temporary(state.step);

  std::string problem = ranks.broadcast(first ? begin(folder) : std::string());
  // Whether the temporary folder may be removed. A refusal at the beginning leaves an existing folder alone.
  bool ours = problem.empty() || problem.front() != kFenced;
  Json files;
  if (problem.empty()) {
    problem = write_files(folder, state, files);
    if (!problem.empty()) problem.insert(problem.begin(), kFailed);
  }
  if (problem.empty()) {
    Committed committed;
    if (first) {
      Json manifest = make_manifest(state);
      manifest["files"] = files;
      committed = commit(folder, target, manifest);
      ours = committed.ours;
    }
    problem = ranks.broadcast(committed.problem);
  }
  if (!problem.empty()) {
    std::error_code ignored;
    if (first && ours) fs::remove_all(folder, ignored);
    const std::string text = "checkpoint of step " + std::to_string(state.step) + " not saved: " + problem.substr(1);
    if (problem.front() == kFenced) throw CheckpointFenced(text);
    throw CheckpointError(text);
  }

  SavedCheckpoint saved;
  saved.path = target;
  for (const Json& file : files.as_array()) saved.bytes += file.at("bytes").as_int();
  if (first) saved.warnings = prune(target, state.step, also_keep);
  return saved;
}

/// Makes the temporary folder on rank 0. Returns an empty text for success, otherwise kFenced or kFailed and the
/// reason.
std::string Checkpointer::begin(const fs::path& folder) const {
  std::string refusal;
  const std::string problem = failure_of([&] {
    if (options_.may_write) refusal = options_.may_write();
    if (!refusal.empty()) return;
    fs::create_directories(options_.folder);
    fs::remove_all(folder);
    fs::create_directory(folder);
  });
  if (!problem.empty()) return kFailed + ("rank 0: " + problem);
  return refusal.empty() ? refusal : kFenced + refusal;
}

/// Writes this rank's file and fills `files` with the sizes and checksums of all ranks' files. Returns the failure of
/// the lowest failing rank, or an empty text.
std::string Checkpointer::write_files(const fs::path& folder, const CheckpointState& state, Json& files) {
  Communicator& ranks = model_.mesh().shard();
  WrittenFile written;
  const std::string mine = failure_of([&] {
    std::vector<std::pair<std::string, at::Tensor>> tensors;
    for (const auto& unit : model_.units()) {
      for (const auto& segment : unit->segments()) {
        for (const ParameterInfo& parameter : segment->layout().parameters()) {
          const Slice slice = segment->layout().own(parameter);
          if (slice.length == 0) continue;
          const auto add = [&](const std::string& kind, const at::Tensor& flat) {
            const at::Tensor part = flat.narrow(0, slice.shard_offset, slice.length);
            tensors.emplace_back(kind + "/" + parameter.name, part.to(at::kFloat));
          };
          add("parameter", segment->shard());
          if (!segment->key().has_master) continue;
          for (const char* name : kStates) add(name, segment->state(name));
        }
      }
    }
    for (const auto& [key, tensor] : state.rank_tensors) tensors.emplace_back("rank/" + key, tensor);
    written = write_safetensors(folder / file_name(ranks.rank(), ranks.world_size()), tensors);
  });
  const std::string problem = ranks.agree(mine);
  if (!problem.empty()) return problem;

  at::Tensor table = at::zeros({ranks.world_size(), 2}, at::kLong);
  table[ranks.rank()][0] = written.bytes;
  table[ranks.rank()][1] = static_cast<std::int64_t>(written.checksum);
  table = table.to(ranks.device());
  ranks.all_reduce(table);
  table = table.to(at::kCPU);
  for (int rank = 0; rank < ranks.world_size(); ++rank) {
    Json file;
    file["name"] = file_name(rank, ranks.world_size());
    file["bytes"] = table[rank][0].item<std::int64_t>();
    file["crc32c"] = table[rank][1].item<std::int64_t>();
    files.push_back(std::move(file));
  }
  return {};
}

/// The manifest without its list of files.
Json Checkpointer::make_manifest(const CheckpointState& state) const {
  Json manifest;
  manifest["format"] = kFormat;
  manifest["version"] = kVersion;
  manifest["step"] = state.step;
  manifest["world_size"] = model_.mesh().world_size();
  manifest["attempt"] = options_.attempt;
  manifest["extra"] = state.extra;
  manifest["optimizer"]["name"] = "adamw";
  manifest["optimizer"]["steps"] = optimizer_.steps();
  const Optimizer::StepCounts counts = optimizer_.parameter_steps();
  Json tensors = Json::Object();
  for (std::size_t i = 0; i < model_.units().size(); ++i) {
    const auto& unit = model_.units()[i];
    for (const auto& segment : unit->segments()) {
      for (const ParameterInfo& parameter : segment->layout().parameters()) {
        Json& tensor = tensors[parameter.name];
        tensor["shape"] = Json::Array(parameter.shape.begin(), parameter.shape.end());
        tensor["unit"] = unit->name();
        tensor["trainable"] = segment->key().has_master;  // whether the optimizer has states of it
        if (segment->key().has_master) tensor["steps"] = counts[i][parameter.index];
        Json slices = Json::Array();
        for (int rank = 0; rank < segment->layout().world_size(); ++rank) {
          const Slice slice = segment->layout().slice(parameter, rank);
          if (slice.length > 0) slices.push_back(Json::Array{rank, slice.begin, slice.length});
        }
        tensor["slices"] = std::move(slices);
      }
    }
  }
  manifest["tensors"] = std::move(tensors);
  return manifest;
}

/// The part of [Note: commit] that rank 0 does after all ranks have written their files.
Checkpointer::Committed Checkpointer::commit(const fs::path& from, const fs::path& to, const Json& manifest) {
  Committed out;
  std::string refusal;
  std::optional<Identity> own;  // set right before the publication
  const std::string problem = failure_of([&] {
    write_text(from / kManifest, manifest.dump(1) + "\n");
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

/// Removes old checkpoints: all but the newest `keep` up to `step` and the checkpoint of step `also_keep`. Later
/// checkpoints belong to a run that this run went back behind; they stay.
std::vector<std::string> Checkpointer::prune(const fs::path& newest, std::int64_t step,
                                             std::optional<std::int64_t> also_keep) {
  std::vector<std::string> warnings;
  int kept = 1;
  CheckpointList list;
  const std::string unlisted = failure_of([&] { list = list_checkpoints(options_.folder); });
  if (!unlisted.empty()) warnings.push_back("old checkpoints not removed: " + unlisted);
  for (const CheckpointInfo& old : list.valid) {
    if (old.step > step || old.path.filename() == newest.filename() || kept++ < options_.keep) continue;
    if (old.step == also_keep) continue;
    // Much time may have passed since the commit.
    if (options_.may_write && !options_.may_write().empty()) break;
    // The rename comes first, so that a crash during the removal does not leave a torn checkpoint.
    const fs::path aside = temporary(old.step);
    const std::string problem = failure_of([&] {
      fs::rename(old.path, aside);
      fs::remove_all(aside);
    });
    if (!problem.empty()) warnings.push_back("old checkpoint " + old.path.string() + " not removed: " + problem);
  }
  return warnings;
}

std::optional<LoadedCheckpoint> Checkpointer::load_latest(std::vector<std::string>* ignored) {
  Communicator& ranks = model_.mesh().shard();
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
  Communicator& ranks = model_.mesh().shard();
  CheckpointInfo info;
  std::optional<Source> source;
  std::string problem = ranks.agree(failure_of([&] {
    info = inspect(path, step);
    source.emplace(info, options_.verify_checksums);
  }));
  if (problem.empty()) {
    check_same_model(info, source->tensors(), model_);
    problem = ranks.agree(failure_of([&] {
      if (info.world_size == ranks.world_size()) source->file(ranks.rank());
      for_each_wanted(model_, *source, [&](const auto& key, const auto& saved, const auto& wanted, auto&) {
        source->overlap(key, saved, wanted, [](const at::Tensor&, std::int64_t) {});
      });
    }));
  }
  if (!problem.empty()) {
    passed_over.push_back(path.filename().string() + ": " + problem);
    return {};
  }

  for (const auto& unit : model_.units())
    for (const auto& segment : unit->segments())
      for (const auto& [name, state] : segment->states()) state.zero_();
  for_each_wanted(model_, *source,
                  [&](const auto& key, const auto& saved, const Slice& wanted, const at::Tensor& flat) {
                    source->overlap(key, saved, wanted, [&](const at::Tensor& part, std::int64_t offset) {
                      flat.narrow(0, wanted.shard_offset + offset, part.numel()).copy_(part);
                    });
                  });
  for (const auto& unit : model_.units()) unit->shard_changed();
  load_steps(model_, optimizer_, *source, info.manifest.at("optimizer").at("steps").as_int());

  LoadedCheckpoint loaded;
  loaded.path = info.path;
  loaded.world_size = info.world_size;
  loaded.state.step = info.step;
  loaded.state.extra = info.manifest.at("extra");
  if (info.world_size == ranks.world_size()) {
    static constexpr std::string_view kRank = "rank/";
    for (const auto& [key, entry] : source->file(ranks.rank()).entries())
      if (key.rfind(kRank, 0) == 0)
        loaded.state.rank_tensors[key.substr(kRank.size())] = source->file(ranks.rank()).tensor(key).clone();
  }
  return loaded;
}

void Checkpointer::remove_stale() {
  Communicator& ranks = model_.mesh().shard();
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

}  // namespace fsdp
