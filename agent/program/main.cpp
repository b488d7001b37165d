// muster-agent: what stands beside ranks. See agent.h.
#include <sys/prctl.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "agent/program/agent.h"
#include "agent/program/before_start.h"
#include "agent/program/controller_link.h"
#include "agent/program/stand_in.h"
#include "agent/protocol/launch.h"
#include "agent/report/grpc_reports.h"
#include "base/arguments.h"
#include "base/numbers.h"
#include "base/usage_error.h"
#include "muster_version.h"
#include "spec/exit_codes.h"
#include "spec/variables.h"

namespace {

constexpr const char* kHelp = R"(muster-agent --attempt FOLDER
muster-agent --set FILE --index N
muster-agent --prepare --set FILE --index N
muster-agent --local FOLDER

Starts ranks of an attempt, stays with them until they have ended, and tells musterd. musterd writes the folder, and
starts the program or has srun start one a rank; people don't need to.

--attempt, --set: one rank inside a Slurm step, of an attempt or of an element of an array.
--prepare: makes the folder of an element of an array, which musterd has left to the batch script. Starts no rank.
--local: all ranks of an attempt on this machine, in the background.
Called as srun or scontrol, it stands in for them in a script for sbatch that runs without Slurm.
--oom-counter FILE: where the kernel counts what it kills for memory ("oom_kill N"), instead of where it does here.
)";

struct Arguments {
  std::filesystem::path attempt_folder;
  std::string local;  // an attempt on this machine
  std::string set;    // of an element of an array
  std::uint32_t index = 0;
  bool help = false, version = false, prepares = false, started_by_musterd = false;
  std::filesystem::path oom_counter = base::OomWatch::best_counter_file();
};

Arguments read_arguments(int argc, char** argv) {
  constexpr auto kKnown = std::to_array<base::Option>({{"--attempt"},
                                                       {"--set"},
                                                       {"--index"},
                                                       {"--prepare", false},
                                                       {"--local"},
                                                       {"--started-by-musterd", false},
                                                       {"--oom-counter"},
                                                       {"--version", false}});
  const auto line = base::read_arguments(argc, argv, kKnown);
  const auto value_of = [&](std::string_view name) {
    const auto* value = line.find(name);
    return value == nullptr ? std::string() : *value;
  };
  Arguments arguments{.attempt_folder = value_of("--attempt"),
                      .local = value_of("--local"),
                      .set = value_of("--set"),
                      .help = line.help,
                      .version = line.has("--version"),
                      .prepares = line.has("--prepare"),
                      .started_by_musterd = line.has("--started-by-musterd")};
  if (line.help || arguments.version) return arguments;
  if (!line.words.empty()) throw base::UsageError("\"" + line.words.front() + "\" is one argument too many");
  if (line.has("--oom-counter")) arguments.oom_counter = value_of("--oom-counter");
  const auto index = base::whole_number<std::uint32_t>(value_of("--index"));
  const bool names_set = !arguments.set.empty() && index;
  const int named = int{!arguments.attempt_folder.empty()} + int{!arguments.local.empty()} + int{names_set};
  if (named != 1) throw std::runtime_error("want --local FOLDER, --attempt FOLDER, or --set FILE and --index N");
  if (arguments.prepares && !names_set) throw std::runtime_error("--prepare wants --set FILE and --index N");
  if (!names_set) return arguments;
  arguments.index = *index;
  arguments.attempt_folder = agent::protocol::attempt_of_set(arguments.set, *index);
  return arguments;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string_view called(argv[0]);
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (called.ends_with("/srun") || called == "srun") return agent::program::run_srun(words);
    if (called.ends_with("/scontrol") || called == "scontrol") return agent::program::run_scontrol(words);
    const auto arguments = read_arguments(argc, argv);
    if (arguments.help) {
      std::fputs(kHelp, stdout);
      return 0;
    }
    if (arguments.version) {
      std::puts("muster-agent " MUSTER_VERSION_TEXT);
      return 0;
    }
    if (!arguments.local.empty()) {
      return agent::program::start_locally({.folder = arguments.local,
                                            .started_by_executor = arguments.started_by_musterd,
                                            .connect = agent::program::link_by_grpc,
                                            .report = agent::report::connect_by_grpc,
                                            .oom_counter = arguments.oom_counter});
    }
    if (arguments.prepares) {
      agent::program::prepare_element(arguments.set, arguments.index, arguments.attempt_folder);
      return 0;
    }
    // Processes that the rank starts, in whatever session, become children of this process, which ends them.
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    agent::program::Agent agent({.attempt_folder = arguments.attempt_folder,
                                 .launch = agent::protocol::read_launch(arguments.attempt_folder),
                                 .inherited = spec::own_environment(),
                                 .oom_counter = arguments.oom_counter,
                                 .connect = agent::program::link_by_grpc,
                                 .report = agent::report::connect_by_grpc,
                                 .has_keeper = true});
    return agent.run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "muster-agent: %s\n", error.what());
    return spec::kExitCannotStart;
  }
}
