#include "fsdp/export.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <stdlib.h>

#include <cstdio>
#include <memory>

#include "buffer_pool.h"
#include "durable.h"
#include "error_text.h"
#include "fsdp/json.h"
#include "fsdp/safetensors.h"
#include "fsdp/tensor_files.h"

namespace fsdp {
namespace {

namespace fs = std::filesystem;

struct PlannedFile {
  std::string name;
  std::vector<TensorPlan> tensors;
};

at::ScalarType exported_dtype(const Segment& segment, const ExportOptions& options) {
  return options.dtype.value_or(segment.shard().scalar_type());
}

/// The files in the order in which units are gathered.
std::vector<PlannedFile> plan_files(const ShardedModel& model, const ExportOptions& options, std::int64_t& bytes) {
  std::vector<PlannedFile> files;
  std::int64_t in_file = 0;
  for (const auto& unit : model.units()) {
    for (const auto& segment : unit->segments()) {
      const at::ScalarType dtype = exported_dtype(*segment, options);
      for (const ParameterInfo& parameter : segment->layout().parameters()) {
        const auto size = parameter.numel * static_cast<std::int64_t>(c10::elementSize(dtype));
        if (files.empty() || (in_file > 0 && in_file + size > options.max_file_bytes)) {
          files.emplace_back();
          in_file = 0;
        }
        files.back().tensors.push_back({parameter.name, dtype, parameter.shape});
        in_file += size;
        bytes += size;
      }
    }
  }
  for (std::size_t i = 0; i < files.size(); ++i) {
    char name[64];
    std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, files.size());
    files[i].name = files.size() == 1 ? kModelFile : name;
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
    std::string pattern = (target_.parent_path() / (prefix() + "XXXXXX")).native();
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

  void remove_leftovers() const {
    std::vector<fs::path> leftovers;
    for (const auto& entry : fs::directory_iterator(target_.parent_path())) {
      const std::string name = entry.path().filename().string();
      const std::string replaced = kTemporaryPrefix + std::string("replaced") + prefix();
      if (name.rfind(prefix(), 0) == 0 || name.rfind(replaced, 0) == 0) leftovers.push_back(entry.path());
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

void write_segment(const Segment& segment, const at::Tensor& gathered, Files& files) {
  for (const ParameterInfo& parameter : segment.layout().parameters())
    files.append(gathered.narrow(0, parameter.offset, parameter.numel).view(parameter.shape));
}

void write_texts(const fs::path& folder, const ExportOptions& options, const std::vector<PlannedFile>& plan,
                 std::int64_t bytes) {
  for (const auto& [name, text] : options.texts) write_text(folder / name, text);
  if (plan.size() > 1) write_text(folder / kModelIndex, index_of(plan, bytes).dump(2) + "\n");
  Json mark;
  mark["format"] = "muster-export";
  mark["tensor_bytes"] = bytes;
  write_text(folder / kExportMark, mark.dump(2) + "\n");
}

}  // namespace

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
  for (const auto& unit : model.units()) unit->check_values("export_model");
  const at::NoGradGuard no_grad;
  Communicator& shards = model.mesh().shard();
  Communicator& ranks = model.mesh().control();
  ExportedModel out;
  const std::vector<PlannedFile> plan = plan_files(model, options, out.bytes);
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
  for (const auto& unit : model.units()) {
    for (const auto& segment : unit->segments()) {
      const at::Tensor buffer =
          pool.tensor(segment->layout().padded_numel(),
                      segment->shard().options().device(shards.device()).dtype(exported_dtype(*segment, options)));
      shards.gather(buffer, segment->shard(), unit->name());
      on_rank_zero([&] { write_segment(*segment, buffer, *files); });
    }
  }
  on_rank_zero([&] {
    write_texts(folder->path(), options, plan, out.bytes);
    folder->publish();
  });
  return out;
}

}  // namespace fsdp
