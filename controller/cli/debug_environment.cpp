#include "cli/debug_environment.h"

#include "beside/rank_files.h"
#include "contract/variables.h"
#include "launch/login_environment.h"
#include "launch/rank_variables.h"
#include "launch/submitter.h"
#include "launch/visible_devices.h"
#include "os/host_name.h"

namespace cli {
namespace {

namespace names = contract::variable;

/// A rank's place. All nodes of the job are this machine.
launch::RankPlace place_of(const muster::v1::Resources& resources, std::uint32_t rank) {
  launch::RankPlace place{.rank = rank, .world_size = resources.nodes() * resources.ranks_per_node()};
  place.local_world_size = resources.ranks_per_node();
  place.local_rank = rank % place.local_world_size;
  place.node_rank = rank / place.local_world_size;
  place.nodes = resources.nodes();
  const auto host = os::host_name();
  place.node_names.assign(place.nodes, host.empty() ? "localhost" : host);
  return place;
}

/// Adds TERM, and the GPUs that this shell may use.
void add_of_this_shell(const muster::v1::Resources& resources, std::uint32_t rank, launch::Environment& to) {
  const auto own = launch::own_environment();
  for (const auto* name : {"TERM", names::kVisibleDevices}) {
    if (const auto found = own.find(name); found != own.end()) to[name] = found->second;
  }
  if (resources.gpus_per_rank() == 0) return;
  auto& devices = to[names::kVisibleDevices];
  devices = launch::visible_devices(devices, resources.gpus_per_rank(), rank).value_or(devices);
}

}  // namespace

launch::Environment debug_environment(const muster::v1::JobSpec& spec, const DebugPlace& place, std::uint32_t rank) {
  auto all = launch::login_environment();
  for (const auto& [name, value] : spec.submitted_env()) all[name] = value;
  for (auto& [name, value] : launch::rank_variables(place_of(spec.resources(), rank))) all[name] = value;
  const auto files = beside::file_variables(beside::rank_files(place.folder / "logs", rank));
  for (const auto& [name, value] : files) all[name] = value;
  all[names::kMasterAddress] = "127.0.0.1";
  all[names::kMasterPort] = place.master_port;
  add_of_this_shell(spec.resources(), rank, all);
  if (spec.has_command()) {
    for (auto& [name, value] : launch::torchelastic_variables(0, 1, spec.requeue().max_failed())) all[name] = value;
  }
  for (const auto& [name, value] : spec.env()) all[name] = value;
  // There is no controller, so there is no job id.
  all[names::kJobId] = "0";
  all[names::kAttempt] = "1";
  all[names::kAttemptFolder] = place.folder;
  all[names::kCheckpointFolder] = place.checkpoints;
  if (spec.has_recipe()) {
    all[names::kRunFile] = place.folder / "run.json";
    all[names::kMetricsFile] = place.folder / ("metrics.rank" + std::to_string(rank) + ".jsonl");
  }
  return all;
}

}  // namespace cli
