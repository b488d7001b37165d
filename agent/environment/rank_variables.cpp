#include "agent/environment/rank_variables.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <sstream>

namespace agent::environment {
namespace {

namespace variable = spec::variable;

spec::Environment node_variables(const RankPlace& place) {
  spec::Environment all{{variable::kNodes, std::to_string(place.nodes)}};
  if (place.node_names.empty()) return all;
  std::string names;
  for (const auto& name : place.node_names) names += (names.empty() ? "" : ",") + name;
  all[variable::kNodeList] = names;
  return all;
}

}  // namespace

spec::Environment rank_variables(const RankPlace& place) {
  const auto text = [](std::uint32_t number) { return std::to_string(number); };
  spec::Environment all{{"RANK", text(place.rank)},
                        {"WORLD_SIZE", text(place.world_size)},
                        {"LOCAL_RANK", text(place.local_rank)},
                        {"LOCAL_WORLD_SIZE", text(place.local_world_size)},
                        {"NODE_RANK", text(place.node_rank)},
                        // torchrun's group is a node's workers; muster has one role.
                        {"GROUP_RANK", text(place.node_rank)},
                        {"GROUP_WORLD_SIZE", text(place.nodes)},
                        {"ROLE_NAME", "default"},
                        {"ROLE_RANK", text(place.rank)},
                        {"ROLE_WORLD_SIZE", text(place.world_size)},
                        {variable::kLocalRank, text(place.local_rank)}};
  all.merge(node_variables(place));
  return all;
}

spec::Environment own_launcher_variables(const RankPlace& place) {
  spec::Environment all{{"NODE_RANK", std::to_string(place.node_rank)},
                        {variable::kLocalRank, std::to_string(place.local_rank)},
                        {variable::kTorchrunNodes, std::to_string(place.nodes)},
                        {variable::kTorchrunNodeRank, std::to_string(place.node_rank)}};
  all.merge(node_variables(place));
  return all;
}

spec::Environment script_variables(const RankPlace& place) {
  auto all = node_variables(place);
  all[variable::kBatch] = "1";
  return all;
}

bool tells_of_a_rank(std::string_view name) {
  constexpr std::array<std::string_view, 17> kNames{
      "RANK",           "WORLD_SIZE",       "LOCAL_RANK",   "LOCAL_WORLD_SIZE",      "GROUP_RANK",
      "ROLE_NAME",      "GROUP_WORLD_SIZE", "ROLE_RANK",    "ROLE_WORLD_SIZE",       "SLURM_PROCID",
      "SLURM_LOCALID",  "SLURM_NTASKS",     "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE", "SLURM_STEP_NUM_TASKS",
      "SLURM_TASK_PID", "SLURM_GTIDS"};
  return name.starts_with("TORCHELASTIC_") || std::ranges::find(kNames, name) != kNames.end();
}

spec::Environment rank_environment(RankLayers layers) {
  auto all = std::move(layers.base);
  if (layers.own_launcher) std::erase_if(all, [](const auto& one) { return tells_of_a_rank(one.first); });
  auto of_place = layers.batch          ? script_variables(layers.place)
                  : layers.own_launcher ? own_launcher_variables(layers.place)
                                        : rank_variables(layers.place);
  for (auto* layer : {&of_place, &layers.given, &layers.own}) {
    for (auto& [name, value] : *layer) all[name] = std::move(value);
  }
  return all;
}

spec::Environment meeting_variables(const std::string& address, const std::string& port) {
  return {{variable::kMasterAddress, address},
          {variable::kMasterPort, port},
          {variable::kTorchrunAddress, address},
          {variable::kTorchrunPort, port}};
}

spec::Environment torchelastic_variables(std::int64_t job, std::uint32_t attempt, std::uint32_t max_restarts) {
  return {{"TORCHELASTIC_RUN_ID", "muster-" + std::to_string(job)},
          {"TORCHELASTIC_RESTART_COUNT", std::to_string(attempt > 0 ? attempt - 1 : 0)},
          {"TORCHELASTIC_MAX_RESTARTS", std::to_string(max_restarts)}};
}

namespace {

constexpr const char* kPath = "/usr/local/bin:/usr/bin:/bin";
constexpr const char* kRootsPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr std::size_t kMostEntry = std::size_t{1} << 20;

void add_user(spec::Environment& to) {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> texts(1024);
  while (::getpwuid_r(::geteuid(), &entry, texts.data(), texts.size(), &found) == ERANGE && texts.size() < kMostEntry) {
    texts.resize(2 * texts.size());
  }
  const auto name = found != nullptr ? std::string(found->pw_name) : std::to_string(::geteuid());
  to["USER"] = to["LOGNAME"] = name;
  to["HOME"] = found != nullptr && *found->pw_dir != 0 ? found->pw_dir : "/";
  to["SHELL"] = found != nullptr && *found->pw_shell != 0 ? found->pw_shell : "/bin/sh";
}

spec::Environment ask() {
  spec::Environment all{
      {"PATH", ::geteuid() == 0 ? kRootsPath : kPath}, {"LANG", "C.UTF-8"}, {"PYTHONUNBUFFERED", "1"}};
  add_user(all);
  return all;
}

}  // namespace

const spec::Environment& login_environment() {
  static const spec::Environment kAsked = ask();
  return kAsked;
}

std::optional<std::string> visible_devices(const std::string& allowed, std::uint32_t count, std::uint32_t local_rank) {
  std::vector<std::string> names;
  std::istringstream list(allowed);
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  const auto first = std::size_t{local_rank} * count;
  if (!names.empty() && first + count > names.size()) return std::nullopt;
  std::string slice;
  for (std::size_t device = first; device < first + count; ++device) {
    if (!slice.empty()) slice += ',';
    slice += names.empty() ? std::to_string(device) : names[device];
  }
  return slice;
}

}  // namespace agent::environment
