#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/checksum.h"
#include "base/words.h"
#include "fsdp/files/checkpoint.h"
#include "fsdp/files/checkpoint_manifest.h"
#include "fsdp/tracing/error_text.h"

namespace fsdp {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kVerifyBytes = 1 << 20;  // read at a time

std::uint32_t checksum_of(const SafetensorsReader& file, std::int64_t begin, std::int64_t end,
                          std::vector<char>& buffer) {
  buffer.resize(kVerifyBytes);
  std::uint32_t sum = 0;
  while (begin < end) {
    const std::int64_t piece = std::min(kVerifyBytes, end - begin);
    file.read_bytes(buffer.data(), piece, begin);
    sum = base::crc32c({buffer.data(), static_cast<std::size_t>(piece)}, sum);
    begin += piece;
  }
  return sum;
}

/// One rank's file of a checkpoint, opened for reading. Failures are CheckpointErrors or c10::Errors that name the
/// file, and the damaged block with its bytes. Not thread-safe.
class SavedFile {
 public:
  /// Compares the header with its checksum, and the whole file in versions 1 and 2. `verify` false compares nothing.
  SavedFile(const fs::path& path, SavedSums sums, bool verify)
      : name_(path.filename().string()), reader_(path), sums_(std::move(sums)), verify_(verify) {
    bytes_read_ = reader_.data_offset();
    if (reader_.file_bytes() != sums_.bytes) fail(name_ + " has another size than the manifest says");
    verified_.resize(sums_.blocks.size());
    if (!verify_) return;
    std::vector<char> buffer;
    if (sums_.whole) {
      bytes_read_ += sums_.bytes;
      if (checksum_of(reader_, 0, sums_.bytes, buffer) != *sums_.whole)
        fail(name_ + " is corrupt: its checksum is not the manifest's");
      return;
    }
    bytes_read_ += reader_.data_offset();
    if (reader_.data_offset() != sums_.header_bytes ||
        checksum_of(reader_, 0, sums_.header_bytes, buffer) != sums_.header)
      fail(name_ + " is corrupt: the checksum of its header is not the manifest's");
  }

  const SafetensorsReader& reader() const { return reader_; }

  /// Compares the blocks that hold elements [begin, begin + count) of a tensor with their checksums, each block once.
  void verify(std::string_view key, std::int64_t begin, std::int64_t count) {
    const TensorEntry& entry = reader_.entry(key);
    const auto size = static_cast<std::int64_t>(c10::elementSize(entry.dtype));
    const std::int64_t first = reader_.data_offset() + entry.begin + begin * size;
    if (count > 0) verify_bytes(first, first + count * size);
  }
  void verify_all() { verify_bytes(0, sums_.bytes); }
  /// Reads elements of the flattened tensor, as SafetensorsReader::read(). Call verify() for them first.
  void read(std::string_view key, std::int64_t begin, const at::Tensor& values) {
    reader_.read(key, begin, values);
    bytes_read_ += values.numel() * static_cast<std::int64_t>(c10::elementSize(reader_.entry(key).dtype));
  }

  /// Bytes read so far, headers included.
  std::int64_t bytes_read() const { return bytes_read_; }

 private:
  void verify_block(std::size_t block, std::vector<char>& buffer) {
    if (verified_[block]) return;
    const std::int64_t begin = static_cast<std::int64_t>(block) * sums_.block_bytes;
    const std::int64_t end = std::min(begin + sums_.block_bytes, sums_.bytes);
    bytes_read_ += end - begin;
    if (checksum_of(reader_, begin, end, buffer) != sums_.blocks[block])
      fail(name_ + " is corrupt in block " + std::to_string(block) + ", bytes " + std::to_string(begin) + " to " +
           std::to_string(end) + ": its checksum is not the manifest's");
    verified_[block] = true;
  }
  void verify_bytes(std::int64_t first, std::int64_t last) {
    if (!verify_ || sums_.whole) return;
    std::vector<char> buffer;
    for (std::int64_t block = first / sums_.block_bytes; block * sums_.block_bytes < last; ++block)
      verify_block(static_cast<std::size_t>(block), buffer);
  }

  std::string name_;
  SafetensorsReader reader_;
  SavedSums sums_;
  bool verify_;
  std::vector<bool> verified_;  // blocks
  std::int64_t bytes_read_ = 0;
};

/// An opened checkpoint. Opens only the files that this rank needs.
class Source {
 public:
  Source(const CheckpointInfo& info, bool checksums)
      : info_(info), checksums_(checksums), parts_(parse_parts(info.manifest)) {}

  const std::map<std::string, SavedPart>& parts() const { return parts_; }

  /// The file of `rank`, opened at the first call.
  SavedFile& file(int rank) {
    auto& opened = files_[rank];
    if (!opened)
      opened = std::make_unique<SavedFile>(info_.path / file_name(rank, info_.world_size),
                                           parse_sums(info_.manifest, rank), checksums_);
    return *opened;
  }

  /// A piece of a saved tensor: values [begin, begin + length) of the tensor `key` in `file`.
  struct Piece {
    SavedFile& file;
    const std::string& key;
    std::int64_t begin;
    std::int64_t length;
    std::int64_t offset;  // of the piece in the wanted slice
  };

  /// Calls `use(piece)` for every saved piece of `wanted`, which counts values of a state of this form.
  template <typename Use>
  void overlap(const std::string& key, const SavedTensor& tensor, const StateForm& form, const Slice& wanted,
               const Use& use) {
    if (form.replicated) {
      // The rank that had the first element has saved all values.
      const SavedSlice all{tensor.slices.front().rank, 0, wanted.length};
      return use(Piece{holder(key, all, form.dtype), key, 0, wanted.length, 0});
    }
    for (const SavedSlice& slice : tensor.slices) {
      if (slice.begin % form.block != 0)
        fail(file_name(slice.rank, info_.world_size) + ": " + key + " begins inside a block of " +
             std::to_string(form.block));
      const SavedSlice saved{slice.rank, slice.begin / form.block, form.values(slice.length)};
      const std::int64_t first = std::max(saved.begin, wanted.begin);
      const std::int64_t last = std::min(saved.begin + saved.length, wanted.begin + wanted.length);
      if (first < last)
        use(Piece{holder(key, saved, form.dtype), key, first - saved.begin, last - first, first - wanted.begin});
    }
  }

  std::int64_t bytes_read() const {
    std::int64_t bytes = 0;
    for (const auto& [rank, file] : files_) bytes += file->bytes_read();
    return bytes;
  }

 private:
  /// The file that holds a saved slice, 1-D.
  SavedFile& holder(const std::string& key, const SavedSlice& slice, at::ScalarType dtype) {
    SavedFile& held = file(slice.rank);
    const TensorEntry& entry = held.reader().entry(key);
    if (entry.dtype != dtype || entry.shape != std::vector<std::int64_t>{slice.length})
      fail(file_name(slice.rank, info_.world_size) + ": " + key + " has another dtype or shape than the manifest says");
    return held;
  }

  const CheckpointInfo& info_;
  bool checksums_;
  std::map<std::string, SavedPart> parts_;
  std::map<int, std::unique_ptr<SavedFile>> files_;
};

/// The tensors of a rank's own, by their keys in its file and without the prefix.
std::map<std::string, std::string> own_tensors(const SavedFile& file) {
  const std::string prefix = std::string(kRankTensors) + "/";
  std::map<std::string, std::string> keys;
  for (const auto& [key, entry] : file.reader().entries())
    if (key.rfind(prefix, 0) == 0) keys[key] = key.substr(prefix.size());
  return keys;
}

at::Tensor read_tensor(SavedFile& file, const std::string& key) {
  const TensorEntry& entry = file.reader().entry(key);
  at::Tensor values = at::empty(entry.shape, at::TensorOptions().dtype(entry.dtype));
  file.read(key, 0, values);
  return values;
}

/// Reads a piece into a flat tensor of any dtype and device.
void read_into(const Source::Piece& piece, const at::Tensor& flat) {
  if (flat.is_cpu()) return piece.file.read(piece.key, piece.begin, flat);
  const at::Tensor host =
      at::empty({piece.length}, at::TensorOptions().dtype(piece.file.reader().entry(piece.key).dtype));
  piece.file.read(piece.key, piece.begin, host);
  flat.copy_(host);
}

[[noreturn]] void mismatch(const CheckpointInfo& info, const std::string& how) {
  throw CheckpointMismatch(info.path.string() + " " + how);
}

void check_same_model(const CheckpointInfo& info, const CheckpointPart& part, const SavedPart& saved, bool some) {
  const auto of_another_model = [&](const std::string& how) {
    mismatch(info, "is of another " + part.name + ": " + how);
  };
  std::set<std::string> names;
  std::int64_t lacked = 0;
  for (const auto& [unit, segment, parameter] : part.model.parameters()) {
    names.insert(parameter.name);
    const auto found = saved.tensors.find(parameter.name);
    if (found == saved.tensors.end()) {
      if (part.saves(parameter))
        of_another_model("it has no parameter " + parameter.name +
                         (saved.left_out > 0 ? " (" + std::to_string(saved.left_out) + " were left out)" : ""));
      ++lacked;
    } else if (found->second.shape != parameter.shape) {
      of_another_model(parameter.name + " has another shape there");
    }
  }
  if (some) return;
  for (const auto& [name, tensor] : saved.tensors)
    if (names.count(name) == 0) of_another_model("this one has no parameter " + name);
  if (lacked != saved.left_out)
    of_another_model("it left out " + std::to_string(saved.left_out) + " parameters, and this run has " +
                     std::to_string(lacked) + " that it does not have");
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
/// depends on manifest, parts and options alone.
void check_same_parts(const CheckpointInfo& info, const std::map<std::string, SavedPart>& saved,
                      const std::vector<CheckpointPart>& parts, const CheckpointOptions& options) {
  std::set<std::string> names;
  for (const CheckpointPart& part : parts) {
    names.insert(part.name);
    const auto found = saved.find(part.name);
    if (found == saved.end()) mismatch(info, "has no part " + part.name + ", which this run has");
    check_same_model(info, part, found->second, options.some_parameters);
    check_same_optimizer(info, part, found->second);
  }
  for (const auto& [name, part] : saved)
    if (names.count(name) == 0 && !options.some_parts)
      mismatch(info, "has a part " + name + ", which this run does not have");
}

bool keeps_average(const SavedPart& saved) {
  return saved.optimizer && std::ranges::find(saved.optimizer->states, kAverageState) != saved.optimizer->states.end();
}

/// Values that a rank reads: those of a parameter, or of a state of it.
struct Wanted {
  StateForm form;
  Slice slice;      // counts values
  at::Tensor flat;  // where they go
};

/// Calls `visit(key, saved tensor, wanted)` for everything that this rank must read.
template <typename Visit>
void for_each_wanted(const std::vector<CheckpointPart>& parts, const Source& source, const Visit& visit) {
  for (const CheckpointPart& part : parts) {
    const SavedPart& saved_part = source.parts().at(part.name);
    const bool averages = part.averages && part.optimizer == nullptr && keeps_average(saved_part);
    for (const auto& [unit, segment, parameter] : part.model.parameters()) {
      const Slice slice = segment.layout().own(parameter);
      const auto found = saved_part.tensors.find(parameter.name);
      if (parameter.numel == 0 || found == saved_part.tensors.end()) continue;
      const SavedTensor& saved = found->second;
      TORCH_CHECK(!segment.is_quantised(), "checkpoint: parameter ", parameter.name, " is kept in ",
                  name_of(segment.key().format),
                  ", and a checkpoint is not quantised; export its model, and read that by load_tensors()");
      const bool has_average = averages && saved.trainable && saved.steps > 0;
      if (slice.length > 0) {
        visit(saved_part.prefix + (has_average ? kAverageState : "parameter") + "/" + parameter.name, saved,
              Wanted{{}, slice, segment.shard()});
      }
      if (part.optimizer == nullptr || !segment.key().has_master || !saved.trainable) continue;
      for (const auto& [name, form] : part.optimizer->states()) {
        const Wanted wanted{form, segment.layout().own_state(form, parameter), segment.state(name, form)};
        if (wanted.slice.length > 0) visit(saved_part.prefix + name + "/" + parameter.name, saved, wanted);
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
  for (const auto& [unit, segment, parameter] : part.model.parameters()) {
    const auto found = saved.tensors.find(parameter.name);
    counts[unit][parameter.index] = segment.key().has_master && found != saved.tensors.end() ? found->second.steps : 0;
  }
  part.optimizer->set_parameter_steps(counts);
}

/// Tells the units which of their parameters have been loaded.
void tell_changes(const CheckpointPart& part, const SavedPart& saved) {
  for (const auto& unit : part.model.units()) {
    std::vector<std::size_t> loaded;
    for (const auto& segment : unit->segments())
      for (const ParameterInfo& parameter : segment->layout().parameters())
        if (saved.tensors.count(parameter.name) != 0) loaded.push_back(parameter.index);
    unit->shard_changed(loaded);
  }
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
  found["ignored"] = Json::Array();
  for (const std::string& reason : list.ignored) found["ignored"].push_back(base::valid_utf8(reason));
  found["steps"] = Json::Array();
  for (const CheckpointInfo& info : list.valid) found["steps"].push_back(info.step);
  found["too_new"] = Json::Array();
  for (const auto& [step, problem] : list.too_new)
    found["too_new"].push_back(Json::Array{step, base::valid_utf8(problem)});
  found = Json::parse(ranks.broadcast(found.dump()));

  std::vector<std::string> passed_over;
  for (const Json& reason : found.at("ignored").as_array()) passed_over.push_back(reason.as_string());
  list.too_new.clear();
  for (const Json& one : found.at("too_new").as_array())
    list.too_new.push_back({one.as_array().at(0).as_int(), one.as_array().at(1).as_string()});
  std::optional<LoadedCheckpoint> loaded;
  for (const Json& step : found.at("steps").as_array()) {
    list.refuse_newer_than(step.as_int());
    const std::string name = step_name(step.as_int());
    loaded = try_load(options_.folder / name, step.as_int(), passed_over);
    if (loaded) break;
  }
  if (!loaded) list.refuse_newer_than(-1);
  if (loaded) loaded->ignored = passed_over;
  if (ignored != nullptr) *ignored = std::move(passed_over);
  return loaded;
}

LoadedCheckpoint Checkpointer::load(const CheckpointInfo& info) {
  Json which = Json::Object{{"path", info.path.string()}, {"step", info.step}};
  which = Json::parse(mesh().control().broadcast(which.dump()));
  std::vector<std::string> problems;
  auto loaded = try_load(which.at("path").as_string(), which.at("step").as_int(), problems);
  if (!loaded) fail("checkpoint " + which.at("path").as_string() + " not loaded: " + problems.front());
  return std::move(*loaded);
}

/// Loads a checkpoint if it is whole on every rank; otherwise adds the reason to `passed_over`. All ranks check
/// everything before any rank changes its model.
std::optional<LoadedCheckpoint> Checkpointer::try_load(const fs::path& path, std::int64_t step,
                                                       std::vector<std::string>& passed_over) {
  const at::NoGradGuard no_grad;
  for (const CheckpointPart& part : parts_)
    if (part.optimizer != nullptr) part.optimizer->check_own_weights("a load");
  Communicator& ranks = mesh().control();
  const Communicator& shards = mesh().shard();
  CheckpointInfo info;
  std::optional<Source> source;
  std::string problem = ranks.agree(failure_of([&] {
    info = inspect(path, step);
    source.emplace(info, options_.verify_checksums);
  }));
  if (problem.empty()) {
    check_same_parts(info, source->parts(), parts_, options_);
    problem = ranks.agree(failure_of([&] {
      for_each_wanted(parts_, *source, [&](const auto& key, const auto& saved, const Wanted& wanted) {
        source->overlap(key, saved, wanted.form, wanted.slice,
                        [](const Source::Piece& piece) { piece.file.verify(piece.key, piece.begin, piece.length); });
      });
      if (info.world_size != shards.world_size()) return;
      SavedFile& own = source->file(shards.rank());
      for (const auto& [key, name] : own_tensors(own)) own.verify(key, 0, own.reader().numel(key));
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
  for_each_wanted(parts_, *source, [&](const auto& key, const auto& saved, const Wanted& wanted) {
    source->overlap(key, saved, wanted.form, wanted.slice, [&](const Source::Piece& piece) {
      read_into(piece, wanted.flat.narrow(0, wanted.slice.shard_offset + piece.offset, piece.length));
    });
  });
  for (const CheckpointPart& part : parts_) {
    tell_changes(part, source->parts().at(part.name));
    load_steps(part, source->parts().at(part.name));
  }

  LoadedCheckpoint loaded;
  loaded.path = info.path;
  loaded.world_size = info.world_size;
  loaded.state.step = info.step;
  loaded.state.extra = info.manifest.at("extra");
  if (info.world_size == shards.world_size()) {
    SavedFile& own = source->file(shards.rank());
    for (const auto& [key, name] : own_tensors(own)) loaded.state.rank_tensors[name] = read_tensor(own, key);
  }
  loaded.bytes_read = source->bytes_read();
  return loaded;
}

void validate(const CheckpointInfo& info) {
  for (int rank = 0; rank < info.world_size; ++rank)
    SavedFile(info.path / file_name(rank, info.world_size), parse_sums(info.manifest, rank), /*verify=*/true)
        .verify_all();
}

}  // namespace fsdp
