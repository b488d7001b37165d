#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "controller/executors/local/local_executor.h"
#include "controller/executors/routing_executor.h"
#include "controller/executors/slurm/slurm_executor.h"
#include "slurm/slurm_client.h"

namespace musterd {

/// The file of the program `name` ("muster-agent"): `given`, the value of its flag ("--agent"), else the file `name`
/// beside musterd. Throws UsageError if the given file cannot be run.
std::filesystem::path program(const std::string& given, const std::string& name);

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
