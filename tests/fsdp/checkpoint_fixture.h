#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "fsdp/files/checkpoint.h"
#include "tests/fsdp/ranks.h"
#include "tests/fsdp/small_model.h"
#include "tests/fsdp/temporary_folder.h"

/// Helpers of the tests of checkpoints: a folder for them, and trainers that save and load there.

inline fsdp::CheckpointState state_of(std::int64_t step) {
  fsdp::CheckpointState state;
  state.step = step;
  state.extra["data_position"] = step * kBatch;
  state.extra["learning_rate"] = 0.1 / 3;
  return state;
}

inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

class Checkpoint : public ::testing::Test {
 protected:
  fsdp::CheckpointOptions options(std::int64_t attempt = 1) const {
    fsdp::CheckpointOptions options;
    options.folder = folder_.path() / "checkpoints";
    options.attempt = attempt;
    return options;
  }
  std::filesystem::path step_path(std::int64_t step) const {
    char name[32];
    std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));
    return folder_.path() / "checkpoints" / name;
  }
  /// Trains `world_size` ranks and saves after each of `steps`.
  void save_steps(int world_size, std::vector<std::int64_t> steps) const {
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      fsdp::Checkpointer checkpointer(trainer.sharded, *trainer.optimizer, options());
      for (std::int64_t step = 1; step <= steps.back(); ++step) {
        trainer.step(step);
        if (std::find(steps.begin(), steps.end(), step) != steps.end()) checkpointer.save(state_of(step));
      }
    });
  }
  /// Loads with `world_size` ranks. Returns the step, or -1, and the ignored checkpoints.
  std::pair<std::int64_t, std::vector<std::string>> load(int world_size) const {
    std::pair<std::int64_t, std::vector<std::string>> result{-1, {}};
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      std::vector<std::string> ignored;
      const auto loaded = fsdp::Checkpointer(trainer.sharded, *trainer.optimizer, options()).load_latest(&ignored);
      if (mesh.rank() == 0) result = {loaded ? loaded->state.step : -1, ignored};
    });
    return result;
  }

  TemporaryFolder folder_;
};
