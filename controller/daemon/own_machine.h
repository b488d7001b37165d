#pragma once

#include <filesystem>
#include <string>

#include "executors/own_machine.h"

namespace musterd {

struct MachineSettings {
  std::string gpus = {};                   // --local-gpus; empty: not given
  std::string cores = "auto";              // --local-cores: "auto", "off" or a number
  std::string library = {};                // NVML; empty: the driver's
  std::filesystem::path devices = "/dev";  // where GPUs show
};

/// What attempts on this machine may have: the GPUs that --local-gpus names, else those of CUDA_VISIBLE_DEVICES, else
/// all that the driver lists, and the cores on which musterd may run. Where no driver lists GPUs, the names of
/// --local-gpus are taken as they are, and there are none without it. Waits a few seconds for the driver. Throws
/// UsageError.
executors::OwnMachine find_own_machine(const MachineSettings& settings);

/// One line for the log: "local jobs share 2 GPUs (--local-gpus) and 16 cores".
std::string own_machine_text(const executors::OwnMachine& machine);

}  // namespace musterd
