#include "tests/slurm/submitit/submitit_style.h"

#include <algorithm>
#include <array>

#include "base/words.h"
#include "slurm/batch_script.h"
#include "tests/slurm/submitit/python_text.h"

namespace slurm {
namespace {

const SubmititValue* find(const SubmititDict& dict, std::string_view name) {
  for (const auto& [key, value] : dict) {
    if (key == name) return &value;
  }
  return nullptr;
}

/// Sets an entry as Python's dict does: an existing name keeps its position.
void set(SubmititDict& dict, const std::string& name, SubmititValue value) {
  for (auto& [key, old] : dict) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  dict.emplace_back(name, std::move(value));
}

bool is_none(const SubmititValue* value) {
  return value == nullptr || std::holds_alternative<std::monostate>(*value);
}

// The parameters of submitit.slurm.slurm._make_sbatch_string, with their defaults.
SubmititDict slurm_defaults() {
  const SubmititValue none;
  return {{"job_name", "submitit"},
          {"partition", none},
          {"time", std::int64_t{5}},
          {"nodes", std::int64_t{1}},
          {"ntasks_per_node", none},
          {"cpus_per_task", none},
          {"cpus_per_gpu", none},
          {"num_gpus", none},
          {"gpus_per_node", none},
          {"gpus_per_task", none},
          {"qos", none},
          {"setup", none},
          {"teardown", none},
          {"mem", none},
          {"mem_per_gpu", none},
          {"mem_per_cpu", none},
          {"signal_delay_s", std::int64_t{90}},
          {"comment", none},
          {"constraint", none},
          {"exclude", none},
          {"account", none},
          {"gres", none},
          {"mail_type", none},
          {"mail_user", none},
          {"nodelist", none},
          {"dependency", none},
          {"exclusive", none},
          {"array_parallelism", std::int64_t{256}},
          {"wckey", "submitit"},
          {"stderr_to_stdout", false},
          {"additional_parameters", none},
          {"srun_args", none},
          {"use_srun", true}};
}

// The parameters that are no options of sbatch.
constexpr std::array<std::string_view, 8> kNotForSbatch = {
    "array_parallelism", "additional_parameters", "setup",     "teardown",
    "signal_delay_s",    "stderr_to_stdout",      "srun_args", "use_srun"};

/// Appends a titled section with one line a list entry.
void add_lines(std::string& text, const SubmititValue* lines, const std::string& title) {
  if (is_none(lines)) return;
  text += "\n\n# " + title;
  for (const auto& line : std::get<SubmititList>(*lines)) text += "\n" + line;
}

/// The path as Python's pathlib prints it: without empty and "." parts. Exactly two leading slashes stay two.
std::string as_path(const std::string& path) {
  const auto slashes = std::min(path.find_first_not_of('/'), path.size());
  std::vector<std::string> parts;
  for (auto& part : base::split(path, '/')) {
    if (!part.empty() && part != ".") parts.push_back(std::move(part));
  }
  return (slashes == 2 ? "//" : "/") + base::joined(parts, "/");
}

std::string flag(std::string key, const SubmititValue& value) {
  std::ranges::replace(key, '_', '-');
  if (const auto* yes = std::get_if<bool>(&value); yes != nullptr && *yes) return "#SBATCH --" + key;
  return "#SBATCH --" + key + "=" + shell_quote(python_str(value));
}

/// Refuses values whose type does not fit the parameter, because Python's spelling of them is not reproduced.
std::vector<std::string> check_kinds(const SubmititParameters& given) {
  std::vector<std::string> why;
  for (const auto& [name, value] : given) {
    if (is_none(&value)) continue;
    const bool wants_list = name == "setup" || name == "teardown" || name == "srun_args";
    const bool wants_dict = name == "additional_parameters";
    if (wants_list != std::holds_alternative<SubmititList>(value)) {
      why.push_back("slurm_" + name + (wants_list ? " must be a list of texts" : " must be one value, not a list"));
    }
    if (wants_dict != std::holds_alternative<SubmititDict>(value)) {
      why.push_back("slurm_" + name + (wants_dict ? " must be a dictionary" : " must be one value, no dictionary"));
    }
    if (name == "array_parallelism" && !python_number(value)) why.push_back("slurm_" + name + " must be a number");
  }
  if (const auto* more = find(given, "additional_parameters"); !is_none(more) && why.empty()) {
    for (const auto& [name, value] : std::get<SubmititDict>(*more)) {
      if (std::holds_alternative<SubmititList>(value) || std::holds_alternative<SubmititDict>(value)) {
        why.push_back("slurm_additional_parameters: " + name + " must be one value");
      }
    }
  }
  return why;
}

struct Logs {
  std::string out, err;
};

/// All options that become #SBATCH lines. The map sorts them by name.
std::map<std::string, SubmititValue> options_of(const SubmititJob& job, const SubmititParameters& all, Logs& logs) {
  std::map<std::string, SubmititValue> options;
  for (const auto& [name, value] : all) {
    if (!is_none(&value) && std::ranges::find(kNotForSbatch, name) == kNotForSbatch.end()) options[name] = value;
  }
  options["signal"] = "USR2@" + python_str(*find(all, "signal_delay_s"));
  if (const auto gpus = options.find("num_gpus"); gpus != options.end()) {
    options["gpus_per_node"] = gpus->second;
    options.erase("num_gpus");
  }
  if (job.tasks > 1) {
    const auto& parallelism = *find(all, "array_parallelism");
    const bool smaller = python_number(parallelism).value() < static_cast<double>(job.tasks);
    options["array"] =
        "0-" + std::to_string(job.tasks - 1) + "%" + (smaller ? python_str(parallelism) : std::to_string(job.tasks));
    logs.out = base::replaced(logs.out, "%j", "%A_%a");
    logs.err = base::replaced(logs.err, "%j", "%A_%a");
  }
  options["output"] = base::replaced(logs.out, "%t", "0");
  if (!python_truth(*find(all, "stderr_to_stdout"))) options["error"] = base::replaced(logs.err, "%t", "0");
  options["open-mode"] = "append";
  if (const auto* more = find(all, "additional_parameters"); !is_none(more)) {
    for (const auto& [name, value] : std::get<SubmititDict>(*more)) options[name] = value;
  }
  return options;
}

std::string srun_line(const SubmititParameters& all, const Logs& logs) {
  std::vector<std::string> words = {"srun", "--unbuffered", "--output", logs.out};
  if (!python_truth(*find(all, "stderr_to_stdout"))) words.insert(words.end(), {"--error", logs.err});
  if (const auto* extra = find(all, "srun_args"); !is_none(extra)) {
    const auto& list = std::get<SubmititList>(*extra);
    words.insert(words.end(), list.begin(), list.end());
  }
  for (auto& word : words) word = shell_quote(word);
  return base::joined(words, " ");
}

}  // namespace

std::vector<std::string> submitit_slurm_names() {
  std::vector<std::string> names;
  for (auto& [name, value] : slurm_defaults()) names.push_back(name);
  std::ranges::sort(names);
  return names;
}

std::variant<std::string, SubmititRefusal> render_submitit(const SubmititJob& job,
                                                           const std::vector<SubmititParameters>& calls) {
  auto converted = convert_submitit(calls);
  if (auto* refusal = std::get_if<SubmititRefusal>(&converted)) return std::move(*refusal);
  const auto& given = std::get<SubmititParameters>(converted);
  auto why = check_kinds(given);
  if (!job.folder.starts_with('/')) why.push_back("the folder '" + job.folder + "' must be absolute");
  if (job.tasks == 0) why.push_back("nothing to submit: 0 tasks");
  if (!why.empty()) return SubmititRefusal{std::move(why)};

  auto all = slurm_defaults();
  for (const auto& [name, value] : given) set(all, name, value);
  const auto folder = as_path(job.folder);
  const auto stem = folder.back() == '/' ? folder : folder + "/";
  Logs logs{stem + "%j_%t_log.out", stem + "%j_%t_log.err"};
  const auto options = options_of(job, all, logs);

  std::string text = "#!/bin/bash\n\n# Parameters";
  for (const auto& [name, value] : options) text += "\n" + flag(name, value);
  add_lines(text, find(all, "setup"), "setup");
  text += "\n\n# command\nexport SUBMITIT_EXECUTOR=slurm\n";
  if (python_truth(*find(all, "use_srun"))) text += srun_line(all, logs) + " ";
  text += job.command + "\n";
  add_lines(text, find(all, "teardown"), "teardown");
  return text;
}

}  // namespace slurm
