#include "worker/train/export_claim.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <functional>
#include <system_error>

#include "base/durable_file.h"
#include "fsdp/files/export.h"
#include "fsdp/files/safetensors.h"
#include "worker/train/export_trained.h"

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

}  // namespace

std::string export_claim_file(const std::string& target) {
  fs::path path = fs::absolute(target).lexically_normal();
  if (path.filename().empty()) path = path.parent_path();
  return (path.parent_path() / (".tmp-export-" + path.filename().native() + "-claim")).native();
}

ExportClaims::ExportClaims(const RunConfig& config, const agent::rank::RankEnvironment& environment)
    : exports_(config.exports), owner_(owner_of(config, environment)) {}

std::vector<std::string> ExportClaims::announce() {
  auto out = others();
  for (const Target& target : targets_of(exports_)) claim(target.path, owner_);
  return out;
}

std::vector<std::string> ExportClaims::news() {
  return others();
}

void ExportClaims::withdraw() {
  for (const Target& target : targets_of(exports_)) {
    std::error_code ignored;
    if (claimed_by(target.path) == owner_) fs::remove(export_claim_file(target.path), ignored);
  }
}

std::vector<std::string> ExportClaims::others() {
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

}  // namespace worker
