#include "spec/jobfile/script_job.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "base/numbers.h"
#include "base/words.h"
#include "slurm/option_words.h"
#include "spec/jobfile/job_keys.h"
#include "spec/jobfile/sbatch_words.h"
#include "spec/jobfile/toml_value.h"
#include "spec/jobfile/validate.h"
#include "spec/key_names.h"

namespace jobfile {
namespace {

namespace fs = std::filesystem;
using ::slurm::WrittenOption;

constexpr std::string_view kMark = "#SBATCH";
constexpr std::size_t kMostScriptBytes = (std::size_t{128} << 10) - 1;  // of one argument, which the text becomes
constexpr const char* kTaskVariable = "SLURM_ARRAY_TASK_ID";

/// Saves the text in the attempt's folder and becomes it, so that $0, the first line and the exit code are the
/// script's own. It is bash that does so: other shells drop the functions in an environment.
constexpr const char* kRunScript =
    "f=$MUSTER_ATTEMPT_FOLDER/slurm_script; printf %s \"$1\" > \"$f\" && chmod 700 \"$f\" && shift && exec \"$f\" "
    "\"$@\"";

/// Variables that a shell sets itself, or that are wrong on another machine.
constexpr auto kShellsOwn = std::to_array<std::string_view>(
    {"DISPLAY", "EUID",   "HOME",   "HOSTNAME", "IFS", "LANG", "LINENO",          "LOGNAME",
     "OLDPWD",  "OPTARG", "OPTIND", "PPID",     "PS1", "PWD",  "RANDOM",          "SECONDS",
     "SHELL",   "SHLVL",  "TERM",   "TMPDIR",   "UID", "USER", "XDG_RUNTIME_DIR", "_"});

/// Options that say nothing about the job.
constexpr auto kWithoutEffect = std::to_array<std::string_view>(
    {"ignore-pbs", "kill-on-invalid-dep", "parsable", "quiet", "requeue", "verbose", "wait"});

/// Options that are left out with a note.
const std::map<std::string, std::string, std::less<>>& noted() {
  static const std::map<std::string, std::string, std::less<>> kAll{
      {"comment", "it is left out: muster finds its own jobs by the comment"},
      {"open-mode", "it is left out: muster keeps a log of each attempt, see muster logs"}};
  return kAll;
}

/// The budgets of causes after which Slurm itself would start the job again.
constexpr auto kBudgets = std::to_array<const char*>(
    {"requeue.max_failed", "requeue.max_rank_silent", "requeue.max_rank_hung", "requeue.max_preempted",
     "requeue.max_timed_out", "requeue.max_node_failed", "requeue.max_out_of_memory", "requeue.max_controller_lost"});

struct PlacedOption {
  WrittenOption option;
  std::string place;  // "slurm_submit.sh:3: --time 90x"
};

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

/// A count of "gpu:a100:4", "a100:4" or "4"; 1 without a number.
std::uint32_t last_count(std::string_view text) {
  const auto last = text.substr(text.rfind(':') + 1);
  return base::whole_number<std::uint32_t>(last.substr(0, last.find('('))).value_or(1);
}

toml::array array_of(const std::vector<std::string>& texts) {
  toml::array all;
  for (const auto& text : texts) all.push_back(text);
  return all;
}

JobSource source_of(const SbatchScript& script) {
  std::vector<std::string> command{"/bin/bash", "-c", kRunScript, fs::path(script.name).filename().native(),
                                   script.text};
  command.insert(command.end(), script.arguments.begin(), script.arguments.end());
  return JobSource::of_table(toml::table{{"name", as_job_name(command[3])},
                                         {"launcher", "batch"},
                                         {"command", array_of(command)},
                                         {"env", toml::table{{"SLURM_SUBMIT_DIR", script.folder.native()}}},
                                         {"slurm", toml::table{{"output", "slurm-%j.out"}}}},
                             script.name, script.folder);
}

/// The names behind a $ in a text: "A" of $A and ${A:-1}.
std::set<std::string> variables_in(std::string_view text) {
  std::set<std::string> names;
  for (auto at = text.find('$'); at != std::string_view::npos; at = text.find('$', at + 1)) {
    auto begin = at + 1;
    if (begin < text.size() && text[begin] == '{') ++begin;
    auto end = begin;
    const auto fits = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    };
    while (end < text.size() && fits(text[end])) ++end;
    std::string name(text.substr(begin, end - begin));
    if (is_variable_name(name)) names.insert(std::move(name));
  }
  return names;
}

class Converter {
 public:
  Converter(const SbatchScript& script, const std::vector<Override>& later, const spec::Environment& here)
      : script_(script), later_(later), here_(here), job_{source_of(script)} {}

  ScriptJob convert() {
    check_text();
    read_lines();
    for (const auto& one : options_) take(one);
    count_tasks();
    job_.source.set_submitter(here_);
    take_named_variables();
    return std::move(job_);
  }

 private:
  void refuse(const std::string& place, const std::string& what) { job_.problems.push_back(place + ": " + what); }
  void note(const PlacedOption& one, const std::string& what) { job_.notes.push_back(one.place + ": " + what); }
  void set(const PlacedOption& one, std::string_view key, const std::string& value) {
    job_.overrides.push_back({.option = one.place, .key = std::string(key), .value = value, .of_file = true});
  }
  void set_text(const PlacedOption& one, std::string_view key, const std::string& value) {
    set(one, key, toml_text(value));
  }

  void check_text() {
    const auto& text = script_.text;
    const auto at = script_.name + ":1";
    if (!text.starts_with("#!")) refuse(at, "want a first line such as #!/bin/bash, as sbatch does");
    if (text.find('\r') != std::string::npos) {
      refuse(at, "the lines end as on DOS (\\r\\n), which sbatch refuses, too; remove them: sed -i 's/\\r$//' " +
                     shown(script_.name));
    }
    if (text.find('\0') != std::string::npos) refuse(at, "the script has a NUL byte; remove it");
    if (text.size() > kMostScriptBytes) {
      refuse(at, "want less than 128 KiB; put a part into a file that the script reads");
    }
    if (!base::is_utf8(text)) refuse(at, "want a script in UTF-8");
  }

  /// sbatch reads options up to the first line that is neither empty nor a comment.
  void read_lines() {
    std::size_t number = 0;
    for (std::string_view rest = script_.text; !rest.empty();) {
      const auto end = rest.find('\n');
      const auto line = rest.substr(0, end);
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
      ++number;
      const auto first = line.find_first_not_of(" \t\r");
      if (first != std::string_view::npos && line[first] != '#') return;
      if (line.starts_with(kMark)) read_line(script_.name + ":" + std::to_string(number), line.substr(kMark.size()));
    }
  }

  void read_line(const std::string& place, std::string_view line) {
    const auto [words, problem] = ::slurm::words_of_line(line);
    if (!problem.empty()) return refuse(place, problem);
    if (!words.empty() && (words[0] == "hetjob" || words[0] == "packjob" || words[0] == ":")) {
      return refuse(
          place, shown(words[0]) + ": muster gives all nodes of a job the same; submit the parts as jobs of their own");
    }
    auto read = ::slurm::read_option_words(words, ::slurm::Reader::kSbatch);
    for (const auto& what : read.problems) refuse(place, shown(what) + "; see man sbatch");
    for (const auto& word : read.others) {
      refuse(place,
             "\"" + shown(word) + "\" is no option, and sbatch refuses it, too; write --option=value, or remove it");
    }
    for (auto& option : read.options) {
      auto where = place + ": " + shown(option.typed);
      options_.push_back({std::move(option), std::move(where)});
    }
  }

  void take(const PlacedOption& one) {
    const auto& name = one.option.name;
    const auto& value = one.option.value;
    using Take = void (Converter::*)(const PlacedOption&, const std::string&);
    static const std::map<std::string, Take, std::less<>> kSpecial{{"array", &Converter::take_array},
                                                                   {"chdir", &Converter::take_chdir},
                                                                   {"error", &Converter::take_error},
                                                                   {"exclusive", &Converter::take_exclusive},
                                                                   {"export", &Converter::take_export},
                                                                   {"gpus-per-task", &Converter::take_gpus_per_task},
                                                                   {"hold", &Converter::take_hold},
                                                                   {"job-name", &Converter::take_name},
                                                                   {"dependency", &Converter::take_dependency},
                                                                   {"mem", &Converter::take_memory},
                                                                   {"mem-per-cpu", &Converter::take_memory},
                                                                   {"mem-per-gpu", &Converter::take_memory},
                                                                   {"nice", &Converter::take_nice},
                                                                   {"no-requeue", &Converter::take_no_requeue},
                                                                   {"nodes", &Converter::keep},
                                                                   {"ntasks", &Converter::keep},
                                                                   {"ntasks-per-node", &Converter::keep},
                                                                   {"output", &Converter::take_output},
                                                                   {"time", &Converter::take_time}};
    if (std::ranges::find(kWithoutEffect, name) != kWithoutEffect.end()) return;
    if (const auto found = noted().find(name); found != noted().end()) return note(one, found->second);
    if (value && value->empty()) return refuse(one.place, "want a value");
    if (const auto special = kSpecial.find(name); special != kSpecial.end()) {
      return (this->*special->second)(one, value.value_or(""));
    }
    for (const auto& key : job_keys()) {
      if (key.sbatch != name) continue;
      const bool is_bare = key.kind == Kind::kWhole || key.kind == Kind::kFlag;
      return set(one, key.name, is_bare || !value ? value.value_or("true") : toml_text(*value));
    }
    pass_on(one);
  }

  /// Gives the option to sbatch as it is.
  void pass_on(const PlacedOption& one) {
    const auto& name = one.option.name;
    const auto& value = one.option.value;
    if (auto problem = is_for_script(name) ? std::string() : refuse_slurm_option(name); !problem.empty()) {
      return refuse(one.place, problem);
    }
    set(one, "slurm.options." + name, value ? toml_text(*value) : "true");
  }

  void keep(const PlacedOption& one, const std::string&) { counts_[one.option.name] = &one; }

  void take_name(const PlacedOption& one, const std::string& value) {
    const auto name = as_job_name(value);
    if (name != value)
      note(one, "the job is called " + name + ", since a name has letters, digits and . _ - = , + alone");
    set_text(one, "name", name);
  }

  void take_time(const PlacedOption& one, const std::string& value) {
    const auto lower = base::lower_case(value);
    if (lower == "unlimited" || lower == "infinite" || value == "0" || value == "-1") return;
    set_text(one, "resources.time_limit", as_duration(value));
  }

  void take_memory(const PlacedOption& one, const std::string& value) {
    if (value == "0") return pass_on(one);  // all memory of a node
    // sbatch reads MiB where there is no unit.
    const auto key = "slurm." + base::replaced(one.option.name, "-", "_");
    set_text(one, key, is_number(value) ? value + "MiB" : value);
  }

  void take_exclusive(const PlacedOption& one, const std::string& value) {
    if (!value.empty()) return pass_on(one);
    set(one, "slurm.exclusive", "true");
  }
  void take_nice(const PlacedOption& one, const std::string& value) {
    set(one, "slurm.nice", value.empty() ? "100" : value);  // sbatch's own default
  }
  void take_hold(const PlacedOption& one, const std::string&) { set(one, "hold", "true"); }
  void take_no_requeue(const PlacedOption& one, const std::string&) {
    for (const auto* key : kBudgets) set(one, key, "0");
  }
  void take_chdir(const PlacedOption& one, const std::string& value) {
    const auto folder = (script_.folder / value).lexically_normal();
    set_text(one, "working_folder", (folder.has_filename() ? folder : folder.parent_path()).native());
  }
  void take_output(const PlacedOption& one, const std::string& value) {
    has_output_ = true;
    set_text(one, "slurm.output", value == "/dev/null" || value == "none" ? "" : value);
  }
  void take_error(const PlacedOption& one, const std::string& value) {
    if (has_output_ || std::ranges::any_of(options_, [](const auto& other) { return other.option.name == "output"; })) {
      return note(one, "it is left out: a log holds both outputs, and --output names it");
    }
    note(one, "a log holds both outputs, so it is the name of both");
    take_output(one, value);
  }

  void take_gpus_per_task(const PlacedOption& one, const std::string& value) {
    if (!is_number(value)) return pass_on(one);  // a kind of GPU
    set(one, spec::key::kGpusOfRank, value);
  }

  void take_dependency(const PlacedOption& one, const std::string& value) {
    if (value == "singleton") return set_text(one, "slurm.options.dependency", value);
    refuse(one.place,
           "it names jobs of Slurm, and a job of muster has another one in each attempt; leave it out, and "
           "name muster's job: --after 12, --after failed:12 or --after ended:12");
  }

  void take_export(const PlacedOption& one, const std::string& value) {
    if (value == "ALL") return;
    if (value == "NONE" || value == "NIL") return set_text(one, "environment", "clean");
    bool all = false;
    for (const auto& item : base::split(value, ',')) {
      const auto equals = item.find('=');
      const auto name = item.substr(0, equals);
      if (item == "ALL") {
        all = true;
      } else if (!is_variable_name(name)) {
        refuse(one.place, "want ALL, NONE, or names and NAME=VALUE with commas");
      } else if (equals != std::string::npos) {
        set_text(one, "env." + name, item.substr(equals + 1));
      } else if (const auto found = here_.find(name); found != here_.end()) {
        set_text(one, "env." + name, found->second);
      }
    }
    if (!all) set_text(one, "environment", "clean");
  }

  /// --array=1-7:2,9%4 is a sweep of the tasks' numbers.
  void take_array(const PlacedOption& one, const std::string& value) {
    constexpr const char* kWant = "want task numbers such as 0-7, 1,3,5 or 0-9:3, and %2 for two at a time";
    const auto percent = value.find('%');
    std::set<std::uint32_t> tasks;
    for (const auto& part : base::split(value.substr(0, percent), ',')) {
      const auto colon = part.find(':');
      const auto range = part.substr(0, colon);
      const auto dash = range.find('-');
      const auto first = base::whole_number<std::uint32_t>(range.substr(0, dash));
      const auto last = dash == std::string::npos ? first : base::whole_number<std::uint32_t>(range.substr(dash + 1));
      const auto step =
          colon == std::string::npos ? std::optional(1U) : base::whole_number<std::uint32_t>(part.substr(colon + 1));
      if (!first || !last || !step || *step == 0 || *last < *first) return refuse(one.place, kWant);
      if ((*last - *first) / *step >= kMostSweepJobs) return refuse(one.place, "want at most 10000 tasks");
      for (auto task = *first; task <= *last; task += *step) tasks.insert(task);
    }
    if (percent != std::string::npos) {
      const auto most = base::whole_number<std::uint32_t>(value.substr(percent + 1));
      if (!most || *most == 0) return refuse(one.place, kWant);
      job_.parallel = *most;
    }
    if (tasks.empty()) return refuse(one.place, kWant);
    SweepAxis axis{std::string("env.") + kTaskVariable, one.place + ": ", {}};
    for (const auto task : tasks) axis.values.push_back(std::to_string(task));
    job_.axes = {std::move(axis)};
    const auto tell = [&](const char* name, std::size_t number) {
      set_text(one, std::string("env.SLURM_ARRAY_TASK_") + name, std::to_string(number));
    };
    tell("COUNT", tasks.size());
    tell("MIN", *tasks.begin());
    tell("MAX", *tasks.rbegin());
    if (!has_output_) set_text(one, "slurm.output", "slurm-%A_%a.out");
  }

  /// The count of an option that says one number. 0: the script does not have it, or it was refused.
  std::uint32_t count_of(const char* name) {
    const auto found = counts_.find(name);
    if (found == counts_.end()) return 0;
    auto text = found->second->option.value.value_or("");
    if (const auto dash = text.find('-'); dash != std::string::npos && text.substr(0, dash) == text.substr(dash + 1)) {
      text = text.substr(0, dash);
    }
    const auto number = is_number(text) ? base::whole_number<std::uint32_t>(text).value_or(0) : 0;
    if (number == 0) {
      refuse(found->second->place, std::string("want one number") +
                                       (found->first == "nodes" ? ": muster asks for a fixed number of nodes" : ""));
    }
    return number;
  }

  /// The tasks of sbatch, which the script's own srun starts, are counted by nodes and by tasks of a node.
  void count_tasks() {
    auto nodes = count_of("nodes");
    const auto tasks = count_of("ntasks"), of_node = count_of("ntasks-per-node");
    const bool says_nodes = nodes > 0;
    for (const auto& override : later_) {
      if (override.key == "resources.nodes" && override.value) {
        nodes = base::whole_number<std::uint32_t>(*override.value).value_or(0);
      }
    }
    if (says_nodes) set(*counts_.at("nodes"), "resources.nodes", std::to_string(nodes));
    if (tasks == 0) {
      if (of_node > 0) set(*counts_.at("ntasks-per-node"), "resources.ranks_per_node", std::to_string(of_node));
      return;
    }
    const auto& one = *counts_.at("ntasks");
    if (nodes == 0 && of_node > 0 && tasks % of_node == 0) {
      nodes = tasks / of_node;
      set(one, "resources.nodes", std::to_string(nodes));
    } else if (nodes == 0) {
      nodes = 1;
      if (tasks > 1 && of_node == 0) {
        note(one, "the script does not say on how many nodes, so muster asks for one; --nodes N asks for more");
      }
    }
    if (of_node > 0 && nodes * of_node != tasks) {
      return refuse(one.place, std::to_string(nodes) + " nodes with --ntasks-per-node=" + std::to_string(of_node) +
                                   " have " + std::to_string(nodes * of_node) +
                                   " tasks; make them agree, or leave one out");
    }
    if (tasks % nodes != 0) {
      return refuse(one.place, "each of the " + std::to_string(nodes) +
                                   " nodes gets the same number of tasks; want a "
                                   "multiple of " +
                                   std::to_string(nodes));
    }
    set(one, "resources.ranks_per_node", std::to_string(tasks / nodes));
  }

  /// sbatch gives a job the submitter's whole environment. muster takes what the script names, so that no secret that
  /// the script does not use is stored.
  void take_named_variables() {
    for (const auto& name : variables_in(script_.text)) {
      const bool own = std::ranges::find(kShellsOwn, name) != kShellsOwn.end() || name.starts_with("SLURM") ||
                       name.starts_with(spec::variable::kPrefix) || name.starts_with("BASH");
      const auto found = here_.find(name);
      if (!own && found != here_.end() && base::is_utf8(found->second)) job_.source.take_also(name, found->second);
    }
  }

  const SbatchScript& script_;
  const std::vector<Override>& later_;
  const spec::Environment& here_;
  ScriptJob job_;
  std::vector<PlacedOption> options_;
  std::map<std::string, const PlacedOption*> counts_;  // the last of each
  bool has_output_ = false;
};

}  // namespace

bool is_sbatch_script(std::string_view file_name, std::string_view text) {
  if (file_name.ends_with(".toml")) return false;
  return text.starts_with("#!") || text.starts_with(kMark) || text.find("\n#SBATCH") != std::string_view::npos;
}

ScriptJob job_of_script(const SbatchScript& script, const std::vector<Override>& later, const spec::Environment& here) {
  return Converter(script, later, here).convert();
}

bool is_for_script(std::string_view option) {
  constexpr auto kAll = std::to_array<std::string_view>(
      {"dependency", "exclusive", "gpus", "gpus-per-node", "gpus-per-task", "mem", "mem-per-cpu", "mem-per-gpu",
       "ntasks-per-core", "ntasks-per-gpu", "ntasks-per-socket", "signal"});
  return std::ranges::find(kAll, option) != kAll.end();
}

std::uint32_t gpus_of_node(const muster::v1::JobSpec& spec) {
  const auto tasks = std::max(1U, spec.resources().ranks_per_node());
  auto most = gpus_of_rank(spec) * tasks;
  std::uint32_t of_gres = 0;
  for (const auto& part : base::split(slurm_text(spec, "gres"), ',')) {
    if (part == "gpu" || part.starts_with("gpu:")) of_gres += last_count(part);
  }
  most = std::max(most, of_gres);
  const auto nodes = std::max(1U, spec.resources().nodes());
  for (const auto& [name, times, parts] :
       {std::tuple("gpus-per-node", 1U, 1U), {"gpus-per-task", tasks, 1U}, {"gpus", 1U, nodes}}) {
    const auto found = spec.slurm().options().find(name);
    if (found == spec.slurm().options().end()) continue;
    std::uint32_t count = 0;
    for (const auto& part : base::split(found->second, ',')) count += last_count(part);
    most = std::max(most, (count * times + parts - 1) / parts);
  }
  return most;
}

}  // namespace jobfile
