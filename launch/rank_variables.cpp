#include "launch/rank_variables.h"

#include "contract/variables.h"

namespace launch {

Environment rank_variables(const RankPlace& place) {
  const auto text = [](std::uint32_t number) { return std::to_string(number); };
  Environment all{{"RANK", text(place.rank)},
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
                  {contract::variable::kNodes, text(place.nodes)}};
  if (place.node_names.empty()) return all;
  std::string names;
  for (const auto& name : place.node_names) names += (names.empty() ? "" : ",") + name;
  all[contract::variable::kNodeList] = names;
  return all;
}

Environment torchelastic_variables(std::int64_t job, std::uint32_t attempt, std::uint32_t max_restarts) {
  return {{"TORCHELASTIC_RUN_ID", "muster-" + std::to_string(job)},
          {"TORCHELASTIC_RESTART_COUNT", std::to_string(attempt > 0 ? attempt - 1 : 0)},
          {"TORCHELASTIC_MAX_RESTARTS", std::to_string(max_restarts)}};
}

}  // namespace launch
