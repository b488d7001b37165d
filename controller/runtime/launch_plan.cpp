#include "runtime/launch_plan.h"

#include <spdlog/spdlog.h>

#include "json/proto_json.h"
#include "runtime/durable_file.h"
#include "runtime/fence.h"
#include "runtime/token_file.h"

namespace runtime {
namespace {

constexpr core::Millis kFencePatience{5000};

void drop_nulls(nlohmann::ordered_json& json) {
  if (!json.is_object()) return;
  for (auto it = json.begin(); it != json.end();) {
    if (it->is_null()) {
      it = json.erase(it);
    } else {
      drop_nulls(*it);
      ++it;
    }
  }
}

nlohmann::ordered_json without_nulls(const google::protobuf::Message& message) {
  auto json = proto::to_json(message);
  drop_nulls(json);
  return json;
}

}  // namespace

std::filesystem::path checkpoint_folder(const muster::v1::JobSpec& spec, core::JobId job, const DataFolder& data) {
  return spec.checkpoint().folder().empty() ? data.checkpoints(job) : std::filesystem::path(spec.checkpoint().folder());
}

nlohmann::ordered_json run_file(const muster::v1::JobSpec& spec, core::JobId job, const DataFolder& data) {
  const auto& recipe = spec.recipe();
  nlohmann::ordered_json out;
  out["format"] = 1;
  out["name"] = spec.name();
  out["recipe"] = recipe.kind();
  out["model"] = without_nulls(recipe.model());
  out["data"] = without_nulls(recipe.data());
  if (recipe.data().cache_folder().empty()) out["data"]["cache_folder"] = data.cache().string();
  out["train"] = without_nulls(recipe.train());
  out["checkpoint"] = without_nulls(spec.checkpoint());
  out["checkpoint"]["folder"] = checkpoint_folder(spec, job, data).string();
  out["fsdp"] = without_nulls(recipe.fsdp());
  return out;
}

LaunchRequest launch_request(const muster::v1::JobSpec& spec, const core::AttemptKey& key,
                             const LaunchSettings& settings) {
  const auto& resources = spec.resources();
  LaunchRequest request;
  request.key = key;
  request.job_name = spec.name();
  request.nodes = resources.nodes();
  request.ranks_per_node = resources.ranks_per_node();
  request.cpus_per_rank = resources.cpus_per_rank();
  request.gpus_per_rank = resources.gpus_per_rank();
  request.time_limit = core::Millis(resources.time_limit_ms());
  request.working_folder = spec.working_folder().empty() ? settings.data.job(key.job).string() : spec.working_folder();
  request.log_folder = settings.data.logs(key).string();
  const auto run_path = settings.data.run_file(key).string();
  if (spec.has_command()) {
    request.argv.assign(spec.command().argv().begin(), spec.command().argv().end());
  } else {
    request.argv = {settings.worker_program.string(), "--run-file", run_path};
    request.env["MUSTER_RUN_FILE"] = run_path;
  }
  for (const auto& [name, value] : spec.env()) request.env[name] = value;
  request.env["MUSTER_CONTROLLER"] = settings.controller_address;
  request.env["MUSTER_RANK_TOKEN"] = rank_token(settings.secret, key.job, key.number);
  request.env["MUSTER_JOB_ID"] = std::to_string(key.job);
  request.env["MUSTER_ATTEMPT"] = std::to_string(key.number);
  request.env["MUSTER_CHECKPOINT_FOLDER"] = checkpoint_folder(spec, key.job, settings.data).string();
  return request;
}

void prepare_folders(const muster::v1::JobSpec& spec, const core::AttemptKey& key, const LaunchSettings& settings) {
  make_folders(settings.data.logs(key));
  const bool ours = spec.checkpoint().folder().empty();
  // A command's own checkpoint folder is none of our business.
  if (spec.has_recipe() || ours) {
    const auto folder = checkpoint_folder(spec, key.job, settings.data);
    if (!raise_fence(folder, key.number, kFencePatience)) {
      spdlog::warn(
          "job {} attempt {}: a rank of an older attempt holds the checkpoint folder {}; it was fenced all the "
          "same",
          key.job, key.number, folder.string());
    }
  }
  if (!spec.has_recipe()) return;
  if (spec.recipe().data().cache_folder().empty()) make_folders(settings.data.cache());
  write_file_durably(settings.data.run_file(key), run_file(spec, key.job, settings.data).dump(2) + "\n");
}

}  // namespace runtime
