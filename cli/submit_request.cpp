#include <unistd.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

#include "base/numbers.h"
#include "base/words.h"
#include "cli/cli_text.h"
#include "cli/client.h"
#include "cli/submit.h"
#include "spec/jobfile/job_file.h"
#include "spec/jobfile/job_keys.h"
#include "spec/jobfile/sbatch_words.h"
#include "spec/jobfile/script_job.h"
#include "spec/jobfile/toml_value.h"
#include "spec/key_names.h"
#include "spec/variables.h"

namespace cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t kMostSettings = 64, kLongestName = 128, kLongestValue = 1024;

/// The text of a value; empty: it is none of those that can be shown.
std::string text_of(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() || value.is_boolean()) return value.dump();
  return {};
}

/// Gives the jobs of a sweep the settings that people see, in place of the keys that vary. `file`: JSON, an array with
/// one object for each job, in the order of the jobs; a name's value is a text, a number, true or false. The jobs
/// themselves stay as they are. Throws a Failure that names the file and the place in it.
void take_settings(const std::string& file, std::vector<muster::v1::JobSpec>& specs) {
  std::ifstream in(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto refuse = [&](const std::string& what) {
    return Failure(kUsage, "--sweep-settings " + file + ": " + what);
  };
  if (!in && text.empty()) throw refuse("cannot be read");
  const auto all = json::parse(text, nullptr, false);
  if (!all.is_array()) throw refuse("want a JSON array with an object for each job");
  if (all.size() != specs.size()) {
    throw refuse("has settings of " + std::to_string(all.size()) + " jobs, and the sweep has " +
                 std::to_string(specs.size()));
  }
  for (std::size_t job = 0; job < specs.size(); ++job) {
    const auto place = "job " + std::to_string(job) + ": ";
    if (!all[job].is_object() || all[job].size() > kMostSettings) {
      throw refuse(place + "want an object with at most " + std::to_string(kMostSettings) + " names");
    }
    auto& shown = *specs[job].mutable_sweep()->mutable_settings();
    shown.clear();
    for (const auto& [name, value] : all[job].items()) {
      if (name.empty() || name.size() > kLongestName) throw refuse(place + "want names of 1 to 128 bytes");
      if (value.is_structured() || value.is_null()) {
        throw refuse(place + "\"" + name + "\" is " + value.type_name() + "; want a text, a number, true or false");
      }
      shown[name] = base::valid_utf8(text_of(value).substr(0, kLongestValue));
    }
  }
}

constexpr const char* kStandardInput = "standard input";
constexpr const char* kCommandLine = "command line";

/// True for a word that names a file of a program: "train.py", "bin/run.sh".
bool is_program_file(const std::string& word) {
  const auto extension = fs::path(word).extension().native();
  return !word.starts_with("-") && extension.size() > 1 && extension.find_first_of("0123456789=") == std::string::npos;
}

/// The name of a job that is a command alone: that of its program's file or module, without an extension. "train" of
/// "python3 src/train.py".
std::string name_of_command(const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0 && words[i - 1] == "-m") return jobfile::as_job_name(words[i].substr(words[i].rfind('.') + 1));
    if (is_program_file(words[i])) return jobfile::as_job_name(fs::path(words[i]).stem().native());
  }
  return jobfile::as_job_name(fs::path(words.front()).filename().native());
}

/// A command without a job file, as a job file would have it.
jobfile::JobSource source_of_command(const std::vector<std::string>& words) {
  toml::array command;
  for (const auto& word : words) command.push_back(word);
  std::error_code error;
  return jobfile::JobSource::of_table(toml::table{{"name", name_of_command(words)}, {"command", std::move(command)}},
                                      kCommandLine, fs::current_path(error));
}

/// The overrides from the command line, and its problems.
struct Overrides {
  std::vector<jobfile::Override> all;
  std::vector<std::string> problems;
};

/// Reads NAME=VALUE, or NAME with the value that it has here. Messages never show the value, which may be a secret.
void add_variable(const std::string& text, const spec::Environment& here, Overrides& to) {
  const auto equals = text.find('=');
  const auto name = text.substr(0, equals);
  const auto option = "--env " + jobfile::shown(name);
  if (!jobfile::is_variable_name(name)) {
    to.problems.push_back(
        option + ": want NAME or NAME=VALUE; a name has letters, digits and \"_\", and does not begin with a digit");
    return;
  }
  const auto found = here.find(name);
  if (equals == std::string::npos && found == here.end()) {
    to.problems.push_back(option + ": the variable is not set here; export it, or write --env " + name + "=VALUE");
    return;
  }
  const auto value = equals == std::string::npos ? found->second : text.substr(equals + 1);
  if (!base::is_utf8(value)) {
    to.problems.push_back(option + ": want a value in UTF-8");
    return;
  }
  to.all.push_back({option, "env." + name, jobfile::toml_text(value)});
}

/// Adds the arguments after "--" to the command of a job file. Without one they are the command.
void add_arguments(const std::vector<std::string>& arguments, bool is_command, Overrides& to) {
  if (arguments.empty()) return;
  std::string typed = "--";
  for (const auto& argument : arguments) {
    typed += " " + jobfile::shown(argument);
    if (base::is_utf8(argument)) continue;
    to.problems.push_back("-- " + jobfile::shown(argument) +
                          ": want UTF-8; check this terminal's settings with locale");
    return;
  }
  if (!is_command) to.all.push_back({typed, "command", std::nullopt, arguments});
}

/// Reads the options that set keys of the job file.
Overrides overrides_of(const SubmitOptions& options, const spec::Environment& here) {
  Overrides out;
  auto& all = out.all;
  for (const auto& assignment : options.set) all.push_back(jobfile::override_of_set(assignment));
  for (const auto& text : options.env) add_variable(text, here, out);
  if (!options.name.empty()) all.push_back({"--name " + options.name, "name", options.name});
  if (!options.executor.empty()) all.push_back({"--executor " + options.executor, "executor", options.executor});
  if (options.hold) all.push_back({"--hold", "hold", "true"});
  const auto add = [&](const char* option, const char* key, const std::string& typed, const std::string& value) {
    if (!typed.empty()) all.push_back({std::string(option) + " " + jobfile::shown(typed), key, value});
  };
  add("--partition", "slurm.partition", options.partition, options.partition);
  add("--nodes", "resources.nodes", options.nodes, options.nodes);
  add("--time", "resources.time_limit", options.time, jobfile::as_duration(options.time));
  if (options.after.empty()) return out;
  std::string typed, array;
  for (const auto& job : options.after) {
    typed += (typed.empty() ? "--after " : " --after ") + jobfile::shown(job);
    std::string text;
    for (const char c : job) {
      if (c != '"' && c != '\\' && static_cast<unsigned char>(c) >= 0x20)
        text += c;  // a job's name has no such character
    }
    append(array, "\"" + text + "\"");
  }
  all.push_back({typed, "after", "[" + array + "]"});
  return out;
}

/// A count for the whole job, as sbatch has it, of which each part of the job gets the same number.
struct Share {
  const char *option, *things, *part;  // "--gpus", "GPUs", "rank"
  std::string_view key;                // the count of one part
};
constexpr Share kRanks{"--ranks", "ranks", "node", "resources.ranks_per_node"};
constexpr Share kGpus{"--gpus", "GPUs", "rank", spec::key::kGpusOfRank};

void share_out(const Share& share, const std::string& text, std::uint64_t parts, Overrides& to) {
  const auto option = std::string(share.option) + " " + jobfile::shown(text);
  const std::string things = share.things, part = share.part, key(share.key);
  const auto count = base::whole_number<std::uint64_t>(text);
  if (!count) {
    to.problems.push_back(option + ": want a number of " + things + " for the whole job; each " + part +
                          " gets the same number of them");
    return;
  }
  parts = std::max<std::uint64_t>(parts, 1);
  if (*count % parts == 0) {
    to.all.push_back({option, key, std::to_string(*count / parts)});
    return;
  }
  to.problems.push_back(option + ": the job has " + std::to_string(parts) + " " + part +
                        "s, and each gets the same number of " + things + "; want a multiple of " +
                        std::to_string(parts) + ", or --set " + key + "=1");
}

/// Adds the options that count for the whole job. They need its number of nodes and ranks, so they come last.
void add_shares(const SubmitOptions& options, const jobfile::JobSource& source, bool is_script, Overrides& to) {
  const auto resources = [&] { return jobfile::compose(source, to.all, jobfile::FileChecks::kSkip).spec.resources(); };
  if (!options.ranks.empty()) share_out(kRanks, options.ranks, resources().nodes(), to);
  if (options.gpus.empty()) return;
  if (is_script) {
    to.all.push_back(
        {"--gpus " + jobfile::shown(options.gpus), "slurm.options.gpus", jobfile::toml_text(options.gpus)});
    return;
  }
  const auto now = resources();
  share_out(kGpus, options.gpus, std::uint64_t{now.nodes()} * now.ranks_per_node(), to);
}

std::nullopt_t tell(const SubmitOptions& options, const std::vector<std::string>& problems) {
  for (const auto& problem : problems) std::cerr << problem << "\n";
  std::cerr << "muster " << options.command << ": nothing was " << (options.command == "plan" ? "planned" : "submitted")
            << "; muster submit --help explains every key\n";
  return std::nullopt;
}

/// Reads one byte more than the limit, so that a longer text is noticed.
std::string standard_input() {
  std::string text(jobfile::kMostJobFileBytes + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const auto count = ::read(STDIN_FILENO, text.data() + size, text.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Failure(kUsage, std::string(kStandardInput) + ": " + std::strerror(errno));
    if (count == 0) break;
    size += static_cast<std::size_t>(count);
  }
  text.resize(size);
  return text;
}

/// The job file to submit, and its origin in words.
struct Wish {
  jobfile::JobSource source;
  std::string place;
  std::vector<jobfile::SweepAxis> axes = {};  // of a script's --array
  std::uint32_t parallel = 0;
  bool is_script = false;
};

/// Makes a job file from a job's spec. The new job keeps the old job's environment, unless the command line sets
/// another.
Wish wish_like(Session& session, std::int64_t id, Overrides& overrides, const spec::Environment& here) {
  auto spec = session.client().call(&JobStub::GetSpec, of_job(id));
  add_arguments(session.arguments, false, overrides);
  const bool asks =
      std::ranges::any_of(overrides.all, [](const auto& override) { return override.key == "environment"; });
  if (asks) spec.clear_submitted_env();
  const auto place = "job " + std::to_string(id);
  auto source = jobfile::JobSource::of_text(jobfile::job_file_text(spec), place, "/");
  if (asks || spec.environment().empty()) source.set_submitter(here);
  return {std::move(source), place};
}

/// The text of the file; empty: it cannot be read, as JobSource::of_file() will tell.
std::string text_of_file(const std::string& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return {};
  std::ifstream in(file, std::ios::binary);
  std::string text(jobfile::kMostJobFileBytes, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(in.gcount(), 0)));
  return text;
}

/// Makes a job of a script for sbatch. Its options stand before those of the command line, which win.
Wish wish_of_script(const SubmitOptions& options, std::string text, std::vector<std::string> arguments,
                    Overrides& overrides, const spec::Environment& here) {
  std::error_code error;
  const bool is_input = options.file == "-";
  auto words = options.words;
  words.insert(words.end(), arguments.begin(), arguments.end());
  auto job = jobfile::job_of_script({std::move(text), is_input ? kStandardInput : jobfile::shown(options.file),
                                     std::move(words), fs::current_path(error)},
                                    overrides.all, here);
  for (const auto& note : job.notes) std::cerr << "muster " << options.command << ": note: " << note << "\n";
  overrides.problems.insert(overrides.problems.begin(), job.problems.begin(), job.problems.end());
  overrides.all.insert(overrides.all.begin(), job.overrides.begin(), job.overrides.end());
  if (!job.axes.empty() && !options.sweep.empty()) {
    overrides.problems.push_back(job.axes.front().option +
                                 "--sweep makes a sweep, too, and a job can't be of both; remove one of them");
  }
  const auto place = is_input ? kStandardInput : jobfile::shown(fs::absolute(options.file, error).native());
  return {std::move(job.source), place, std::move(job.axes), job.parallel, true};
}

Wish wish_of(Session& session, const SubmitOptions& options, Overrides& overrides, const spec::Environment& here) {
  if (options.like > 0) return wish_like(session, options.like, overrides, here);
  const auto text = options.file == "-" ? standard_input() : text_of_file(options.file);
  if (!options.file.empty() && jobfile::is_sbatch_script(options.file, text)) {
    return wish_of_script(options, text, session.arguments, overrides, here);
  }
  if (!options.words.empty()) {
    throw Failure(kUsage, jobfile::shown(options.words.front()) +
                              ": want one job file; arguments for its command stand after --, and those of a script "
                              "for sbatch after the script");
  }
  add_arguments(session.arguments, options.file.empty(), overrides);
  std::error_code error;
  auto wish =
      options.file.empty() ? Wish{source_of_command(session.arguments), kCommandLine}
      : options.file == "-"
          ? Wish{jobfile::JobSource::of_text(text, kStandardInput, fs::current_path(error)), kStandardInput}
          : Wish{jobfile::JobSource::of_file(options.file), jobfile::shown(fs::absolute(options.file, error).native())};
  wish.source.set_submitter(here);
  return wish;
}

void check_options(const SubmitOptions& options, const std::vector<std::string>& arguments) {
  if (options.file.empty() && options.like == 0 && arguments.empty()) {
    throw Failure(kUsage, std::string("want JOB.toml, - for standard input, ") +
                              (options.command == "submit" ? "a command after --, " : "") +
                              "or --like JOB; see muster " + options.command + " --help");
  }
  if (fs::path(options.file).extension() == ".py") {
    throw Failure(kUsage, options.file + " is a program, and no job file; submit it as a command: muster submit -- " +
                              "python3 " + options.file + "; or write a job file for it: muster init program");
  }
  if (!options.file.empty() && options.like > 0) {
    throw Failure(kUsage, "want JOB.toml or --like, not both; --set changes a value of either");
  }
}

/// Reads the axes of --sweep. Adds its problems to `problems`.
std::vector<jobfile::SweepAxis> axes_of(const SubmitOptions& options, std::vector<std::string>& problems) {
  std::vector<jobfile::SweepAxis> axes;
  for (const auto& text : options.sweep) {
    auto axis = jobfile::axis_of_option(text);
    for (const auto& known : axes) {
      if (known.key == axis.axis.key)
        axis.problem = "--sweep " + jobfile::shown(text) + ": " + known.key + " varies already";
    }
    if (!axis.problem.empty()) problems.push_back(axis.problem);
    axes.push_back(std::move(axis.axis));
  }
  return axes;
}

/// muster limits a sweep, or Slurm does.
void check_parallel(std::uint32_t parallel, jobfile::Sweep& sweep) {
  const auto throttled = std::ranges::find_if(
      sweep.specs, [](const auto& spec) { return jobfile::slurm_whole(spec, "array_parallelism") > 0; });
  if (throttled == sweep.specs.end()) return;
  sweep.problems.push_back("--parallel " + std::to_string(parallel) + ": slurm.array_parallelism is " +
                           std::to_string(jobfile::slurm_whole(*throttled, "array_parallelism")) +
                           ": want either muster's limit or that of Slurm's arrays; leave out one of them");
}

}  // namespace

std::optional<Request> read_request(Session& session, const SubmitOptions& options) {
  check_options(options, session.arguments);
  const auto own = spec::own_environment();
  auto wanted = overrides_of(options, own);
  const auto wish = wish_of(session, options, wanted, own);
  const auto& [source, place, axes_of_script, parallel_of_script, is_script] = wish;
  add_shares(options, source, is_script, wanted);
  auto& [overrides, problems] = wanted;
  auto axes = axes_of(options, problems);
  axes.insert(axes.end(), axes_of_script.begin(), axes_of_script.end());
  const bool here = is_loopback(session.config().address.value);
  auto checks = here ? jobfile::FileChecks::kLook : jobfile::FileChecks::kSkip;
  auto file = jobfile::compose(source, overrides, checks);
  const bool is_sweep = !axes.empty() || !file.axes.empty();
  if (problems.empty() && is_sweep) {
    auto sweep = jobfile::compose_sweep(source, overrides, std::move(axes), checks);
    if (options.parallel > 0 && sweep.problems.empty()) check_parallel(options.parallel, sweep);
    if (!sweep.problems.empty()) return tell(options, sweep.problems);
    if (!options.sweep_settings.empty()) take_settings(options.sweep_settings, sweep.specs);
    for (auto& spec : sweep.specs) spec.set_job_file(place);
    const auto parallel = options.parallel > 0     ? options.parallel
                          : parallel_of_script > 0 ? parallel_of_script
                                                   : sweep.parallel;
    return Request{std::move(sweep.specs), true, parallel, options.like};
  }
  if (file.problems.empty() && file.spec.executor() == "debug" && !here) {
    file = jobfile::compose(source, overrides, jobfile::FileChecks::kLook);  // a debug job runs on this machine
  }
  problems.insert(problems.end(), file.problems.begin(), file.problems.end());
  if (!problems.empty()) return tell(options, problems);
  if (options.parallel > 0) throw Failure(kUsage, "--parallel is for sweeps; add --sweep, or leave it out");
  if (!options.sweep_settings.empty()) throw Failure(kUsage, "--sweep-settings is for sweeps; leave it out");
  file.spec.set_job_file(place);
  return Request{{std::move(file.spec)}, false, 0, options.like};
}

}  // namespace cli
