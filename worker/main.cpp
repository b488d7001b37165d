// muster-worker: one rank of a run. Its exit code tells the controller how it ended; see spec/exit_codes.h.
#include <ATen/Parallel.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>

#include "agent/rank/environment.h"
#include "agent/rank/reporter.h"
#include "agent/rank/signals.h"
#include "base/arguments.h"
#include "base/cgroups.h"
#include "base/fd.h"
#include "base/numbers.h"
#include "base/usage_error.h"
#include "muster_version.h"
#include "spec/exit_codes.h"
#include "worker/plan/plan_command.h"
#include "worker/recipes/registry.h"
#include "worker/starter/library_path.h"
#include "worker/train/gpu.h"
#include "worker/train/run.h"
#include "worker/train/train_config.h"

namespace {

#ifdef MUSTER_WITH_CUDA
constexpr const char* kWithCuda = " with CUDA";
#else
constexpr const char* kWithCuda = "";
#endif

constexpr const char* kHelp = R"(muster-worker [--run-file FILE] [--plan [--memory BYTES [--memory-of TEXT]] [--gpu]]

One rank of a training run. musterd starts it; by hand, start one process a rank.

  --run-file FILE   what to train, as JSON (default: $MUSTER_RUN_FILE)
  --plan            print as JSON what a rank needs of memory and network, and train nothing
  --memory BYTES    of a plan: what a rank may use; then the plan says whether it fits, and what would
  --memory-of TEXT  of a plan: where that number comes from, for people
  --gpu             of a plan: each rank has a GPU, and --memory is a GPU's
  --version         the versions of this program and of LibTorch
  --help            this text

Environment
  RANK LOCAL_RANK NODE_RANK WORLD_SIZE LOCAL_WORLD_SIZE   which rank this is (or Slurm's SLURM_PROCID and so on;
                                                          a single process without either)
  MASTER_ADDR MASTER_PORT    where rank 0 listens (needed for several ranks without a controller)
  MUSTER_CONTROLLER          host:port of musterd; without it metrics go to a file
  MUSTER_METRICS_FILE        that file, JSON lines (default: $MUSTER_REPORT, else metrics.rank<r>.jsonl)
  OMP_NUM_THREADS            threads of this rank (default: cores / ranks on this node)
  XDG_CACHE_HOME HOME        where text of data.source is kept without data.cache_folder. The program muster-data, which
                             must lie beside this one or in PATH, reads such text; data.prepared needs no program

Signals: SIGUSR2 or SIGTERM: all ranks finish the step, save and leave together. A SIGTERM half a second
later or more: leave at once, without saving.
Exit codes: 0 done; 99 saved, start me again; 97 out of memory; 94 another attempt owns the job; 93 the run file or the
data is wrong, don't start me again; 1 anything else.
)";

struct Arguments {
  std::string file;  // the run file; may be empty with `help` and `version`
  bool help = false, version = false, plan = false;
  worker::Limit limit{.what = "--memory"};  // of a plan; 0 bytes: none
};

std::int64_t bytes_of(const std::string& text) {
  const auto bytes = base::whole_number<std::int64_t>(text);
  if (!bytes || *bytes < 1) throw base::UsageError("--memory " + text + ": want a number of bytes above 0");
  return *bytes;
}

/// Throws UsageError.
Arguments parse_arguments(int argc, char** argv, const std::string& from_environment) {
  constexpr auto kKnown = std::to_array<base::Option>(
      {{"--run-file"}, {"--plan", false}, {"--memory"}, {"--memory-of"}, {"--gpu", false}, {"--version", false}});
  const auto line = base::read_arguments(argc, argv, kKnown);
  Arguments out{
      .file = from_environment, .help = line.help, .version = line.has("--version"), .plan = line.has("--plan")};
  if (!line.words.empty()) throw base::UsageError("\"" + line.words.front() + "\" is one argument too many");
  if (const auto* file = line.find("--run-file")) out.file = *file;
  if (const auto* memory = line.find("--memory")) out.limit.bytes = bytes_of(*memory);
  if (const auto* of = line.find("--memory-of")) out.limit.what = *of;
  out.limit.of_gpu = line.has("--gpu");
  if (out.file.empty() && !out.help && !out.version)
    throw base::UsageError("no run file: give one with --run-file or MUSTER_RUN_FILE");
  return out;
}

/// Divides the cores that this process may use evenly among the ranks of its node. OMP_NUM_THREADS overrides the
/// division.
void set_threads(const agent::rank::RankEnvironment& environment) {
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return;
  const int cores = static_cast<int>(base::core_limit().cores);
  at::set_num_threads(std::max(1, cores / environment.local_world_size));
}

/// Prints and reports the failure, then ends the process without destructors. After a failure, collectives with dead
/// peers may still be in progress.
[[noreturn]] void fail(const worker::Outcome& outcome, int rank, std::unique_ptr<agent::rank::Reporter> reporter) {
  std::fflush(stdout);
  std::fprintf(stderr, "[rank %d] error: %s (exit code %d)\n", rank, outcome.reason.c_str(),
               static_cast<int>(outcome.code));
  std::fflush(stderr);
  if (reporter) reporter->leaving(outcome.code, outcome.reason);
  reporter.reset();
  std::_Exit(outcome.code);
}

}  // namespace

int main(int argc, char** argv) {
  starter::take_back_library_path();
  worker::set_up_gpus();
  agent::rank::install_stop_signals();
  // Rank 0 has two connections to each rank, and CPU ranks of several nodes have more (docs/ranks.md). Only muster-data
  // is started later, which may have as many.
  base::raise_open_files_limit();
  agent::rank::RankEnvironment environment;
  worker::RunConfig config;
  std::unique_ptr<agent::rank::Reporter> reporter;
  std::unique_ptr<worker::Trainer> trainer;
  worker::Outcome outcome;
  try {
    environment = agent::rank::read_environment();
    const Arguments arguments = parse_arguments(argc, argv, environment.run_file);
    if (arguments.help) {
      std::fputs(kHelp, stdout);
      return spec::kExitDone;
    }
    if (arguments.version) {
      std::printf("muster-worker " MUSTER_VERSION_TEXT ", LibTorch " TORCH_VERSION "%s\n", kWithCuda);
      return spec::kExitDone;
    }
    if (arguments.plan) {
      config = worker::read_run_config(arguments.file);
      std::puts(worker::plan_report(config, environment, arguments.limit).dump().c_str());
      return spec::kExitDone;
    }
    agent::rank::offer_stacks();
    reporter = agent::rank::make_reporter(environment);
    reporter->section(agent::rank::Section::kInit);
    config = worker::read_run_config(arguments.file);
    set_threads(environment);
    worker::check_memory(config, environment, worker::limit_here(environment));
    trainer = std::make_unique<worker::Trainer>(config, environment, *reporter, worker::make_recipe);
    outcome = trainer->run();
  } catch (...) {
    fail(worker::outcome_of(std::current_exception()), environment.rank, std::move(reporter));
  }
  reporter->leaving(outcome.code, outcome.reason);
  trainer.reset();
  return outcome.code;
}
