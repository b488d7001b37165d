#include "worker/train/run.h"

#include <optional>
#include <utility>

#include "fsdp/memory/tensor_bytes.h"

namespace worker {

/// Members live until the Trainer ends, also after an exception.
struct Trainer::State {
  RunConfig config;
  const agent::rank::RankEnvironment& environment;
  agent::rank::Reporter& reporter;
  const MakeRecipe make_recipe;
  std::optional<Setup> setup;
  std::optional<Resume> resume;
  std::optional<Loop> loop;
};

Trainer::Trainer(const RunConfig& config, const agent::rank::RankEnvironment& environment,
                 agent::rank::Reporter& reporter, MakeRecipe make_recipe)
    : state_(new State{config, environment, reporter, std::move(make_recipe), {}, {}, {}}) {}

Trainer::~Trainer() = default;

Outcome Trainer::run() {
  const fsdp::CountTensorBytes counting;
  State& state = *state_;
  state.setup.emplace(state.config, state.environment, state.reporter, state.make_recipe);
  state.resume.emplace(*state.setup);
  state.loop.emplace(*state.setup, *state.resume);
  return state.loop->run();
}

}  // namespace worker
