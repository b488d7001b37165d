#include "fsdp/files/export.h"

#include <fcntl.h>
#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string_view>

#include "fsdp/comm/buffer_pool.h"
#include "fsdp/files/durable.h"
#include "fsdp/files/safetensors.h"
#include "fsdp/text/json.h"
#include "fsdp/tracing/error_text.h"

namespace fsdp {
namespace {

namespace fs = std::filesystem;

/// Characters that mkdtemp() replaces by letters and digits.
constexpr std::string_view kDrawn = "XXXXXX";

struct PlannedFile {
  std::string name;
  std::vector<TensorPlan> tensors;
};

at::ScalarType exported_dtype(const Segment& segment, const ExportOptions& options) {
  return options.dtype.value_or(segment.value_dtype());
}

bool is_exported(const Segment& segment, const ExportOptions& options) {
  const auto& all = segment.layout().parameters();
  return std::any_of(all.begin(), all.end(),
                     [&](const auto& one) { return !exported_names(one.name, options).empty(); });
}

/// The files in the order in which units are gathered.
std::vector<PlannedFile> plan_files(const ShardedModel& model, const ExportOptions& options, std::int64_t& bytes) {
  std::vector<PlannedFile> files;
  std::set<std::string> names;
  std::int64_t in_file = 0;
  for (const auto& [unit, segment, parameter] : model.parameters()) {
    const at::ScalarType dtype = exported_dtype(segment, options);
    for (const std::string& name : exported_names(parameter.name, options)) {
      TORCH_CHECK(names.insert(name).second, "export: name_of gives parameter ", parameter.name, " the name ", name,
                  ", which another parameter has already");
      const auto size = parameter.numel * static_cast<std::int64_t>(c10::elementSize(dtype));
      if (files.empty() || (in_file > 0 && in_file + size > options.max_file_bytes)) {
        files.emplace_back();
        in_file = 0;
      }
      files.back().tensors.push_back({name, dtype, parameter.shape});
      in_file += size;
      bytes += size;
    }
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    char number[32] = "";
    if (files.size() > 1) std::snprintf(number, sizeof number, "-%05zu-of-%05zu", i + 1, files.size());
    files[i].name = options.file_stem + number + ".safetensors";
  }
  return files;
}

Json index_of(const std::vector<PlannedFile>& files, std::int64_t bytes) {
  Json index;
  index["metadata"]["total_size"] = bytes;
  for (const PlannedFile& file : files)
    for (const TensorPlan& tensor : file.tensors) index["weight_map"][tensor.name] = file.name;
  return index;
}

/// The folder of an export until it is whole. Exists on rank 0 only.
class ExportFolder {
 public:
  explicit ExportFolder(const fs::path& target) : target_(fs::absolute(target).lexically_normal()) {
    if (target_.filename().empty()) target_ = target_.parent_path();
    check_export_folder(target_);
    fs::create_directories(target_.parent_path());
    remove_leftovers();
    std::string pattern = (target_.parent_path() / (prefix() + std::string(kDrawn))).native();
    TORCH_CHECK(::mkdtemp(pattern.data()) != nullptr, "cannot create a folder beside ", target_.string());
    path_ = pattern;
    fs::permissions(path_,
                    fs::perms::group_read | fs::perms::group_exec | fs::perms::others_read | fs::perms::others_exec,
                    fs::perm_options::add);
  }
  ~ExportFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ExportFolder(const ExportFolder&) = delete;
  ExportFolder& operator=(const ExportFolder&) = delete;

  const fs::path& path() const { return path_; }

  void publish() const {
    sync_path(path_, O_RDONLY | O_DIRECTORY);
    check_export_folder(target_);
    const fs::path before = publish_folder(path_, target_);
    sync_path(target_.parent_path(), O_RDONLY | O_DIRECTORY);
    if (!before.empty()) fs::remove_all(before);
  }

 private:
  std::string prefix() const { return kTemporaryPrefix + std::string("export-") + target_.filename().string() + "-"; }

  /// Those of this target. A folder "out-2" beside "out" may be exported at this moment, so the ending counts, too.
  void remove_leftovers() const {
    std::vector<fs::path> leftovers;
    for (const auto& entry : fs::directory_iterator(target_.parent_path())) {
      const std::string name = entry.path().filename().string();
      const std::string replaced = kTemporaryPrefix + std::string("replaced") + prefix();
      const auto is_left_over = [&](const std::string& beginning) {
        return name.starts_with(beginning) && name.size() == beginning.size() + kDrawn.size() &&
               name.find('-', beginning.size()) == std::string::npos;
      };
      if (is_left_over(prefix()) || is_left_over(replaced)) leftovers.push_back(entry.path());
    }
    for (const fs::path& path : leftovers) fs::remove_all(path);
  }

  fs::path target_, path_;
};

/// Writes tensors into the planned files, one after the other.
class Files {
 public:
  Files(const std::vector<PlannedFile>& plan, const fs::path& folder) : plan_(plan), folder_(folder) {}

  void append(const at::Tensor& tensor) {
    if (writer_ == nullptr) {
      const PlannedFile& file = plan_[file_];
      writer_ = std::make_unique<SafetensorsWriter>(folder_ / file.name, file.tensors,
                                                    std::map<std::string, std::string>{{"format", "pt"}});
    }
    writer_->append(tensor);
    if (++tensor_ < plan_[file_].tensors.size()) return;
    writer_->finish();
    writer_.reset();
    tensor_ = 0;
    ++file_;
  }

 private:
  const std::vector<PlannedFile>& plan_;
  const fs::path& folder_;
  std::unique_ptr<SafetensorsWriter> writer_;
  std::size_t file_ = 0, tensor_ = 0;
};

/// A segment with its parameters gathered.
struct Gathered {
  const Segment& segment;
  at::Tensor buffer;
};

void write_segment(const Gathered& gathered, const ExportOptions& options, Files& files) {
  for (const ParameterInfo& parameter : gathered.segment.layout().parameters())
    for (std::size_t i = exported_names(parameter.name, options).size(); i > 0; --i)
      files.append(parameter.in(gathered.buffer));
}

/// Writes what value_of makes of a unit's parameters.
void write_unit(const std::string& unit, const std::vector<Gathered>& segments, const ExportOptions& options,
                Files& files) {
  const auto of_unit = [&](const std::string& name) {
    for (const Gathered& gathered : segments)
      for (const ParameterInfo& parameter : gathered.segment.layout().parameters())
        if (parameter.name == name) return parameter.in(gathered.buffer).to(at::kFloat);
    TORCH_CHECK(false, "value_of asks for parameter ", name, ", which is not in unit ", unit,
                "; ask for one of the same unit");
  };
  for (const Gathered& gathered : segments) {
    for (const ParameterInfo& parameter : gathered.segment.layout().parameters()) {
      const std::size_t times = exported_names(parameter.name, options).size();
      if (times == 0) continue;
      const at::Tensor value = options.value_of(parameter.name, parameter.in(gathered.buffer).to(at::kFloat), of_unit);
      TORCH_CHECK(value.defined() && value.sizes() == at::IntArrayRef(parameter.shape), "value_of gives ",
                  value.defined() ? c10::str(value.sizes()) : "nothing", " for parameter ", parameter.name, " ",
                  at::IntArrayRef(parameter.shape));
      for (std::size_t i = 0; i < times; ++i) files.append(value.to(exported_dtype(gathered.segment, options)));
    }
  }
}

void copy_files(const fs::path& folder, const ExportOptions& options) {
  for (const fs::path& from : options.copies) {
    const fs::path to = folder / from.filename();
    TORCH_CHECK(!fs::exists(to), "cannot copy ", from.string(), ": the export has another file of this name");
    std::error_code error;
    fs::copy_file(from, to, error);
    TORCH_CHECK(!error, "cannot copy ", from.string(), ": ", error.message());
    sync_path(to, O_RDONLY);
  }
}

void write_texts(const fs::path& folder, const ExportOptions& options, const std::vector<PlannedFile>& plan,
                 std::int64_t bytes) {
  for (const auto& [name, text] : options.texts) write_text(folder / name, text);
  if (plan.size() > 1)
    write_text(folder / (options.file_stem + ".safetensors.index.json"), index_of(plan, bytes).dump(2) + "\n");
  Json mark = Json::Object{{"format", "muster-export"}, {"tensor_bytes", bytes}};
  if (!options.origin.empty()) mark["origin"] = options.origin;
  write_text(folder / kExportMark, mark.dump(2) + "\n");
}

}  // namespace

std::vector<std::string> exported_names(const std::string& parameter, const ExportOptions& options) {
  const std::optional<std::string> name = options.name_of ? options.name_of(parameter) : parameter;
  if (!name) return {};
  std::vector<std::string> all{*name};
  if (!options.more_names_of) return all;
  for (std::string& more : options.more_names_of(parameter)) all.push_back(std::move(more));
  return all;
}

std::string export_origin(const fs::path& folder) {
  std::string origin;
  (void)failure_of([&] {
    std::ifstream in(folder / kExportMark);
    const Json mark = Json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
    if (const Json* found = mark.find("origin")) origin = found->as_string();
  });
  return origin;
}

void check_export_folder(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) return;
  TORCH_CHECK(fs::is_directory(folder, error), folder.string(), " is no folder; choose another path");
  TORCH_CHECK(fs::is_empty(folder, error) || fs::exists(folder / kExportMark, error), folder.string(),
              " holds other files than an earlier export (no ", kExportMark,
              "), and an export replaces the folder; choose another folder, or empty this one");
}

ExportedModel export_model(ShardedModel& model, const ExportOptions& options) {
  TORCH_CHECK(options.max_file_bytes >= 1, "export: max_file_bytes ", options.max_file_bytes, ": want 1 or more");
  TORCH_CHECK(!options.file_stem.empty() && options.file_stem.find('/') == std::string::npos, "export: file_stem \"",
              options.file_stem, "\": want a name without \"/\"");
  for (const auto& unit : model.units()) unit->check_values("export_model");
  const at::NoGradGuard no_grad;
  Communicator& shards = model.mesh().shard();
  Communicator& ranks = model.mesh().control();
  ExportedModel out;
  const std::vector<PlannedFile> plan = plan_files(model, options, out.bytes);
  TORCH_CHECK(!plan.empty(), "export to ", options.folder.string(),
              ": no parameter is left to write; name_of leaves out all");
  for (const PlannedFile& file : plan) out.files.push_back(file.name);

  std::unique_ptr<ExportFolder> folder;
  std::unique_ptr<Files> files;
  // Rank 0 may fail at any unit. All ranks hear of it before the next collective.
  const auto on_rank_zero = [&](const auto& work) {
    const std::string problem = ranks.broadcast(ranks.rank() == 0 ? failure_of(work) : std::string());
    TORCH_CHECK(problem.empty(), "export to ", options.folder.string(), ": ", problem);
  };
  on_rank_zero([&] {
    folder = std::make_unique<ExportFolder>(options.folder);
    files = std::make_unique<Files>(plan, folder->path());
  });
  BufferPool pool(shards.device(), shards.peer_memory());
  const auto gather = [&](const Unit& unit, const Segment& segment, at::ScalarType dtype) {
    const at::Tensor buffer =
        pool.tensor(segment.layout().padded_numel(), segment.shard().options().device(shards.device()).dtype(dtype));
    shards.gather(buffer, segment.values(), unit.name());
    return Gathered{segment, buffer};
  };
  for (const auto& unit : model.units()) {
    std::vector<const Segment*> wanted;
    for (const auto& segment : unit->segments())
      if (is_exported(*segment, options)) wanted.push_back(segment.get());
    if (wanted.empty()) continue;
    if (!options.value_of) {
      for (const Segment* segment : wanted) {
        const Gathered gathered = gather(*unit, *segment, exported_dtype(*segment, options));
        on_rank_zero([&] { write_segment(gathered, options, *files); });
      }
      continue;
    }
    std::vector<Gathered> whole;  // what is left out, too, because value_of may ask for it
    for (const auto& segment : unit->segments()) whole.push_back(gather(*unit, *segment, segment->value_dtype()));
    on_rank_zero([&] { write_unit(unit->name(), whole, options, *files); });
  }
  on_rank_zero([&] {
    write_texts(folder->path(), options, plan, out.bytes);
    copy_files(folder->path(), options);
    folder->publish();
  });
  return out;
}

}  // namespace fsdp
