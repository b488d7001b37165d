// muster-task: what srun starts for each rank. See task.h.
#include <sys/prctl.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#include "agent/protocol/launch.h"
#include "agent/report/grpc_reports.h"
#include "agent/task/prepare.h"
#include "agent/task/task.h"
#include "agent/task/task_reporter.h"
#include "base/cgroups.h"
#include "spec/exit_codes.h"
#include "spec/variables.h"

namespace {

constexpr const char* kHelp = R"(muster-task --attempt FOLDER
muster-task --set FILE --index N
muster-task --prepare --set FILE --index N

Starts one rank of an attempt inside a Slurm step. musterd writes the folder; srun starts one muster-task a rank.

--prepare: makes the folder of an element of an array, which musterd has left to the batch script. Starts no rank.

--oom-counter FILE: where the kernel counts what it kills for memory ("oom_kill N"), instead of where it does here.
)";

struct Arguments {
  std::filesystem::path attempt_folder;
  std::string set;  // of an element of an array
  std::uint32_t index = 0;
  bool prepares = false;
  std::filesystem::path oom_counter = base::OomWatch::best_counter_file();
};

Arguments read_arguments(int argc, char** argv) {
  Arguments arguments;
  auto& set = arguments.set;
  std::optional<std::uint32_t> index;
  arguments.prepares = argc > 1 && std::string_view(argv[1]) == "--prepare";
  for (int i = arguments.prepares ? 2 : 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i], value = argv[i + 1];
    if (name == "--attempt") {
      arguments.attempt_folder = value;
    } else if (name == "--oom-counter") {
      arguments.oom_counter = value;
    } else if (name == "--set") {
      set = value;
    } else if (name == "--index") {
      std::uint32_t number = 0;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
      if (error == std::errc() && end == value.data() + value.size()) index = number;
    }
  }
  if (!arguments.attempt_folder.empty()) return arguments;
  if (set.empty() || !index) throw std::runtime_error("want --attempt FOLDER, or --set FILE and --index N");
  arguments.index = *index;
  arguments.attempt_folder = agent::protocol::attempt_of_set(set, *index);
  return arguments;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && (std::string_view(argv[1]) == "--help" || std::string_view(argv[1]) == "-h")) {
    std::fputs(kHelp, stdout);
    return 0;
  }
  try {
    const auto arguments = read_arguments(argc, argv);
    if (arguments.prepares) {
      agent::task::prepare_element(arguments.set, arguments.index, arguments.attempt_folder);
      return 0;
    }
    // Processes that the rank starts, in whatever session, become children of this process, which ends them.
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    agent::task::Task task({.attempt_folder = arguments.attempt_folder,
                            .launch = agent::protocol::read_task_launch(arguments.attempt_folder),
                            .inherited = spec::own_environment(),
                            .oom_counter = arguments.oom_counter,
                            .connect = agent::task::report_by_grpc,
                            .report = agent::report::connect_by_grpc,
                            .has_keeper = true});
    return task.run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "muster-task: %s\n", error.what());
    return spec::kExitCannotStart;
  }
}
