#pragma once

#include <cstdint>
#include <string>

#include "spec/variables.h"

namespace agent::environment {

/// The place of a batch script that runs without Slurm: one machine, which has all of its tasks.
struct BatchPlace {
  std::int64_t job = 0;  // muster's number, which takes the place of Slurm's
  std::string name, node, partition, working_folder;
  std::uint32_t tasks = 1, cpus_of_task = 0, cpus_of_node = 1, gpus = 0;
  std::string devices = {};  // as CUDA_VISIBLE_DEVICES names them
};

/// The variables that Slurm would give such a script.
spec::Environment batch_variables(const BatchPlace& place);

/// One task of a step that srun starts there.
struct StepPlace {
  std::uint32_t task = 0, tasks = 1, cpus_of_task = 0;
  std::string node;
};
/// The variables that srun would give this task, besides those of its script.
spec::Environment step_variables(const StepPlace& place);

}  // namespace agent::environment
