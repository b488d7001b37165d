#include "agent/environment/batch_variables.h"

namespace agent::environment {

spec::Environment batch_variables(const BatchPlace& place) {
  const auto job = std::to_string(place.job), tasks = std::to_string(place.tasks);
  spec::Environment all{{"SLURM_JOB_ID", job},
                        {"SLURM_JOBID", job},
                        {"SLURM_JOB_NAME", place.name},
                        {"SLURM_JOB_NODELIST", place.node},
                        {"SLURM_NODELIST", place.node},
                        {"SLURM_JOB_NUM_NODES", "1"},
                        {"SLURM_NNODES", "1"},
                        {"SLURM_NTASKS", tasks},
                        {"SLURM_NPROCS", tasks},
                        {"SLURM_NTASKS_PER_NODE", tasks},
                        {"SLURM_TASKS_PER_NODE", tasks},
                        {"SLURM_CPUS_ON_NODE", std::to_string(place.cpus_of_node)},
                        {"SLURM_JOB_CPUS_PER_NODE", std::to_string(place.cpus_of_node)},
                        {"SLURM_SUBMIT_DIR", place.working_folder},
                        {"SLURM_CLUSTER_NAME", "local"},
                        {"SLURM_JOB_PARTITION", place.partition.empty() ? "local" : place.partition},
                        {"SLURMD_NODENAME", place.node},
                        {"SLURM_PROCID", "0"},
                        {"SLURM_LOCALID", "0"},
                        {"SLURM_NODEID", "0"},
                        {"SLURM_GTIDS", "0"}};
  if (place.cpus_of_task > 0) all["SLURM_CPUS_PER_TASK"] = std::to_string(place.cpus_of_task);
  if (place.gpus > 0) {
    all["SLURM_GPUS_ON_NODE"] = std::to_string(place.gpus);
    all["SLURM_JOB_GPUS"] = place.devices;
  }
  return all;
}

spec::Environment step_variables(const StepPlace& place) {
  const auto task = std::to_string(place.task), tasks = std::to_string(place.tasks);
  spec::Environment all{{"SLURM_PROCID", task},
                        {"SLURM_LOCALID", task},
                        {"SLURM_NODEID", "0"},
                        {"SLURM_NTASKS", tasks},
                        {"SLURM_NPROCS", tasks},
                        {"SLURM_TASKS_PER_NODE", tasks},
                        {"SLURM_STEP_ID", "0"},
                        {"SLURM_STEPID", "0"},
                        {"SLURM_STEP_NUM_NODES", "1"},
                        {"SLURM_STEP_NUM_TASKS", tasks},
                        {"SLURM_STEP_TASKS_PER_NODE", tasks},
                        {"SLURM_STEP_NODELIST", place.node},
                        {"SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"},
                        {"SLURM_SRUN_COMM_HOST", "127.0.0.1"}};
  if (place.cpus_of_task > 0) all["SLURM_CPUS_PER_TASK"] = std::to_string(place.cpus_of_task);
  return all;
}

}  // namespace agent::environment
