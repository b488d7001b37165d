#include "worker/train/export_trained.h"

#include <unistd.h>

#include <c10/util/Exception.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "base/durable_file.h"
#include "base/numbers.h"
#include "base/usage_error.h"
#include "fsdp/files/export.h"
#include "fsdp/files/safetensors.h"
#include "worker/train/agreement.h"
#include "worker/train/evaluation.h"
#include "worker/train/strategy.h"

namespace worker {
namespace {

namespace fs = std::filesystem;

constexpr unsigned kForAll = 0644;

struct Target {
  const char* key;
  std::string path;
  std::function<std::string()> written_by;  // empty: not known, or nothing is there
};

/// `exports` must outlive the targets.
std::vector<Target> targets_of(const spec::Exports& exports) {
  std::vector<Target> out;
  if (!exports.folder.empty())
    out.push_back({"train.export_folder", exports.folder, [&] { return fsdp::export_origin(exports.folder); }});
  if (!exports.full_state_file.empty())
    out.push_back(
        {"train.full_state_file", exports.full_state_file, [&] { return full_state_origin(exports.full_state_file); }});
  return out;
}

std::string owner_of(const RunConfig& config, const agent::rank::RankEnvironment& environment) {
  return environment.job_id.empty() ? "the run " + config.name : "job " + environment.job_id;
}

/// The text of a claim; empty: there is none.
std::string claimed_by(const std::string& target) {
  try {
    return base::read_small_file(export_claim_file(target));
  } catch (const std::exception&) {
    return {};
  }
}

void claim(const std::string& target, const std::string& owner) {
  try {
    const fs::path file = export_claim_file(target);
    base::make_folders(file.parent_path());
    base::write_file_durably(file, owner, kForAll);
  } catch (const std::exception&) {
    // A folder that cannot be written is told by those who export.
  }
}

at::ScalarType exported_dtype(const RunConfig& config) {
  return dtype_of(config.exports.dtype.value_or(config.train.precision));
}

/// The metadata that tell a file of a full state from others.
constexpr const char *kWrittenBy = "muster", *kFullState = "full_state", *kOrigin = "origin";

/// Where the file of a full state is until it is whole.
fs::path unfinished(const fs::path& file) {
  return file.parent_path() / (".tmp-" + file.filename().native());
}

fs::path absolute(const std::string& path) {
  fs::path out = fs::absolute(path).lexically_normal();
  return out.filename().empty() ? out.parent_path() : out;
}

/// Throws base::UsageError unless something new can be made in a folder once it and those above it have been made.
void check_writable(const fs::path& folder, const std::string& place) {
  std::error_code error;
  fs::path above = folder;
  while (!fs::exists(above, error) && above != above.parent_path()) above = above.parent_path();
  if (!fs::is_directory(above, error))
    throw base::UsageError(place + above.native() + " is no folder; choose another path");
  if (::access(above.c_str(), W_OK | X_OK) != 0) {
    throw base::UsageError(place + "cannot write in " + above.native() + ": " + std::strerror(errno) +
                           "; choose another path");
  }
}

/// A member of a safetensors file's metadata; empty: there is none, or no such file.
std::string metadata_of(const fs::path& file, const char* name) {
  try {
    const auto& metadata = fsdp::SafetensorsReader(file).metadata();
    const auto found = metadata.find(name);
    return found == metadata.end() ? std::string() : found->second;
  } catch (const c10::Error&) {
    return {};
  }
}

/// Throws base::UsageError where the file cannot be written at the end, or is another one already.
void check_full_state_file(const spec::Exports& exports) {
  const std::string place = "train.full_state_file = \"" + exports.full_state_file + "\": ";
  const fs::path file = absolute(exports.full_state_file);
  std::error_code error;
  if (exports.full_state_file.ends_with('/') || fs::is_directory(file, error))
    throw base::UsageError(place + "this is a folder; name a file, such as model.safetensors in it");
  if (fs::exists(file, error) && metadata_of(file, kWrittenBy) != kFullState)  // an earlier run may have written it
    throw base::UsageError(place +
                           "there is a file that no earlier run has written there; choose another path, or remove it");
  for (fs::path above = file.parent_path(); above != above.parent_path(); above = above.parent_path()) {
    if (!exports.folder.empty() && above == absolute(exports.folder))
      throw base::UsageError(place +
                             "an export replaces the whole folder of train.export_folder; name a file outside of it");
  }
  check_writable(file.parent_path(), place);
}

/// Throws base::UsageError where the folder cannot be written at the end, or holds something else.
void check_export_folder(const RunConfig& config) {
  const std::string place = "train.export_folder = \"" + config.exports.folder + "\": ";
  std::error_code error;
  if (fs::equivalent(config.exports.folder, config.values.text(spec::kPretrained), error))
    throw base::UsageError(place + "this is model.pretrained, which an export would replace; choose another folder");
  try {
    fsdp::check_export_folder(config.exports.folder);
  } catch (const c10::Error& failure) {
    throw base::UsageError(place + failure.what_without_backtrace());
  }
  check_writable(absolute(config.exports.folder).parent_path(), place);
}

/// The weights that an export with these options has, in its order, from all parameters of the model.
std::vector<std::pair<std::string, at::Tensor>> exported_weights(const fsdp::ShardedModel& model,
                                                                 const std::map<std::string, at::Tensor>& state,
                                                                 const fsdp::ExportOptions& options) {
  std::vector<std::pair<std::string, at::Tensor>> out;
  const fsdp::ExportOptions::OfUnit whole = [&](const std::string& name) { return state.at(name); };
  for (const auto& unit : model.units()) {
    for (const auto& segment : unit->segments()) {
      for (const fsdp::ParameterInfo& parameter : segment->layout().parameters()) {
        const at::Tensor& value = state.at(parameter.name);
        for (const auto& name : fsdp::exported_names(parameter.name, options))
          out.emplace_back(name, options.value_of ? options.value_of(parameter.name, value, whole) : value);
      }
    }
  }
  return out;
}

/// Collective. Rank 0 writes, and has a line to say.
std::optional<std::string> write_full_state(const std::string& path, fsdp::ShardedModel& model,
                                            const fsdp::ExportOptions& options) {
  const auto state = model.gather_full_state(/*rank_zero_only=*/true);
  std::int64_t bytes = 0;
  together(model.mesh().control(), [&] {
    if (model.mesh().rank() != 0) return;
    const fs::path file = fs::absolute(path).lexically_normal();
    try {
      base::make_folders(file.parent_path());
      fs::remove(unfinished(file));  // of an attempt that was killed
      const auto weights = exported_weights(model, state, options);
      std::vector<fsdp::TensorPlan> plan;
      for (const auto& [name, value] : weights) plan.push_back({name, *options.dtype, value.sizes().vec()});
      fsdp::SafetensorsWriter writer(unfinished(file), plan,
                                     {{"format", "pt"}, {kWrittenBy, kFullState}, {kOrigin, options.origin}});
      for (const auto& [name, value] : weights) writer.append(value.to(*options.dtype));
      bytes = writer.finish().bytes;
      fs::rename(unfinished(file), file);
      base::sync_folder(file.parent_path());
    } catch (const c10::Error& error) {
      throw std::runtime_error("train.full_state_file: " + std::string(error.what_without_backtrace()));
    } catch (const std::system_error& error) {
      throw std::runtime_error("train.full_state_file: " + std::string(error.what()));
    }
  });
  if (model.mesh().rank() != 0) return std::nullopt;
  return "gathered the full state and wrote it to " + path + " (" + base::bytes_text(bytes) + ")";
}

}  // namespace

std::string export_claim_file(const std::string& target) {
  fs::path path = fs::absolute(target).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  return (path.parent_path() / (".tmp-export-" + path.filename().native() + "-claim")).native();
}

ExportClaims::ExportClaims(const RunConfig& config, const agent::rank::RankEnvironment& environment)
    : exports_(config.exports), owner_(owner_of(config, environment)) {}

std::vector<std::string> ExportClaims::announce() {
  auto out = news();
  for (const Target& target : targets_of(exports_)) claim(target.path, owner_);
  return out;
}

void ExportClaims::withdraw() {
  for (const Target& target : targets_of(exports_)) {
    std::error_code ignored;
    if (claimed_by(target.path) == owner_) fs::remove(export_claim_file(target.path), ignored);
  }
}

std::vector<std::string> ExportClaims::news() {
  std::vector<std::string> out;
  const auto tell = [&](std::string text) {
    if (std::ranges::find(told_, text) != told_.end()) return;
    told_.push_back(text);
    out.push_back(std::move(text));
  };
  for (const Target& target : targets_of(exports_)) {
    const std::string place = std::string(target.key) + " = \"" + target.path + "\"", now = target.written_by(),
                      later = claimed_by(target.path);
    if (!now.empty() && now != owner_) tell(place + " holds the export of " + now + ", which this one replaces");
    if (!later.empty() && later != owner_ && later != now)
      tell(place + " is also where " + later +
           " exports, unless it has ended without one; the later export replaces the earlier one");
  }
  return out;
}

bool exports_anything(const RunConfig& config) {
  return !config.exports.folder.empty() || !config.exports.full_state_file.empty();
}

void check_export(const RunConfig& config) {
  if (!config.exports.full_state_file.empty()) check_full_state_file(config.exports);
  if (!config.exports.folder.empty()) check_export_folder(config);
}

std::string full_state_origin(const std::string& path) {
  return metadata_of(path, kOrigin);
}

std::vector<std::string> export_trained(const RunConfig& config, Recipe& recipe, Parts& parts,
                                        const std::string& owner) {
  std::vector<std::string> lines;
  if (!exports_anything(config)) return lines;
  const spec::Exports& asked = config.exports;
  fsdp::ExportOptions options;
  options.folder = asked.folder;
  options.origin = owner;
  options.max_file_bytes = asked.file_bytes;
  options.dtype = exported_dtype(config);
  AveragedWeights averaged(parts.optimizer());
  fsdp::ShardedModel& model = recipe.exported(parts, options);
  if (!asked.folder.empty()) {
    const fsdp::ExportedModel out = fsdp::export_model(model, options);
    lines.push_back("exported the model to " + asked.folder + " (" + std::to_string(out.files.size()) +
                    (out.files.size() == 1 ? " file, " : " files, ") + base::bytes_text(out.bytes) + ")");
  }
  if (!asked.full_state_file.empty()) {
    if (auto line = write_full_state(asked.full_state_file, model, options)) lines.push_back(*std::move(line));
  }
  averaged.end();
  return lines;
}

}  // namespace worker
