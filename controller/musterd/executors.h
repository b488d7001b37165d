#pragma once

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "controller/common/loop.h"
#include "controller/executors/executor.h"
#include "controller/executors/local/local_executor.h"
#include "controller/executors/slurm/slurm_executor.h"
#include "slurm/slurm_client.h"

namespace musterd {

/// The variable's value; empty: it is not set.
inline std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

struct MachineSettings {
  std::string gpus = {};             // --local-gpus; empty: not given
  std::string cores = "auto";        // --local-cores: "auto", "off" or a number
  std::string library = {};          // NVML; empty: the driver's
  std::filesystem::path root = "/";  // where the kernel shows GPUs: base::signs_of_gpus()
};

/// GPUs and cores that attempts on this machine may have: the GPUs that --local-gpus names, else those of
/// CUDA_VISIBLE_DEVICES, else all that the driver lists, and the cores that musterd may use (base::core_limit()). Where
/// no driver lists GPUs, the names of --local-gpus are taken as they are, and there are none without it. But a rank
/// that is given no GPU sees none, unless the kernel shows no GPU either, or --local-gpus is "open". Throws UsageError.
executors::OwnMachine find_own_machine(const MachineSettings& settings);

/// One line for the log: "local jobs share 2 GPUs (--local-gpus) and 16 cores".
std::string own_machine_text(const executors::OwnMachine& machine);

/// Asks again while no GPUs are known that nobody has named or ruled out: a driver may be silent at the start of a
/// machine. One that does not answer is asked by one thread, which outlives the watch. Thread-safe.
class MachineWatch {
 public:
  static constexpr std::chrono::seconds kEvery{30};
  using Find = std::function<executors::OwnMachine()>;
  using Changed = std::function<void(const executors::OwnMachine&)>;

  /// `find`: as find_own_machine(), however long it takes. `changed` is called in the watch's thread.
  MachineWatch(const MachineSettings& settings, executors::OwnMachine now, Changed changed, Find find = {},
               bool threads = true);
  void start() { loop_.start(kEvery); }
  /// Only without threads.
  void look() { loop_.step(); }

 private:
  struct Look;
  std::optional<core::Millis> step();

  const bool may_change_;
  executors::OwnMachine now_;
  const Changed changed_;
  const Find find_;
  std::shared_ptr<Look> look_;  // under way
  common::Loop loop_;
};

/// The file of the program `name` ("muster-agent"): `given`, the value of its flag ("--agent"), else the file `name`
/// beside musterd. Throws UsageError if the given file cannot be run.
std::filesystem::path program(const std::string& given, const std::string& name);

/// Why jobs cannot go to Slurm, with a remedy. Empty: Slurm's commands are installed and a cluster is configured.
/// `wanted` is the value of --slurm: "auto", "yes" or "no". With "yes", sinfo is run to find out, since Slurm may get
/// its configuration from elsewhere.
std::string reason_against_slurm(const std::string& wanted, base::CommandRunner& runner);

struct ExecutorSettings {
  std::filesystem::path data;
  std::string secret;          // of the store
  std::string agent;           // the flag's value; empty: the file beside musterd
  std::string slurm = "auto";  // "auto", "yes" or "no"
  core::Millis slurm_poll{1000};
  std::uint64_t open_files = 0;  // the soft limit of open files for programs that musterd starts
  executors::OwnMachine machine = {};
};

/// The executor of local processes and, if Slurm can be used, the one of Slurm. Throws UsageError if --slurm is "yes"
/// and Slurm cannot be used.
class Executors {
 public:
  Executors(const ExecutorSettings& settings, common::Clock& clock);
  executors::Executor& get() { return both_ ? *both_ : *local_; }
  bool has_slurm() const { return slurm_ != nullptr; }
  const std::string& why_no_slurm() const { return why_no_slurm_; }
  /// Programs that are missing now. Each entry says what cannot run, and the remedy.
  std::vector<std::string> problems() const;

 private:
  std::filesystem::path agent_;
  bool agent_is_missing_ = false;  // Slurm could be used if muster-agent had been there
  std::string why_no_slurm_;
  std::unique_ptr<executors::Executor> local_;
  base::ProcessRunner runner_;
  std::unique_ptr<slurm::Client> client_;
  std::unique_ptr<executors::Executor> slurm_;
  std::unique_ptr<executors::Executor> both_;
};

}  // namespace musterd
