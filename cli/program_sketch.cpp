#include "cli/program_sketch.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <string_view>

#include "base/numbers.h"
#include "base/words.h"
#include "slurm/batch_script.h"
#include "spec/jobfile/toml_value.h"

namespace cli {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kMostSourceBytes = 1 << 20;
constexpr unsigned kMostProcesses = 64;

bool is_python(const std::string& name) {
  return name.ends_with(".py");
}

/// Calls `take` with each line of the text.
template <typename Take>
void each_line(std::string_view text, Take take) {
  while (!text.empty()) {
    const auto end = text.find('\n');
    take(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
}

/// The words of a line between white space.
std::vector<std::string> shell_words(std::string_view line) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : line) {
    if (c != ' ' && c != '\t' && c != '\r') {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

/// The facts that a Python program's text tells.
struct Looks {
  bool torch = false, transformers = false, lightning = false, hydra = false, muster = false;
  int points = 0;  // the program with the most is the trainer

  bool trains() const { return torch || transformers || lightning || hydra; }
};

Looks look_at(const SourceText& program) {
  Looks looks;
  each_line(program.text, [&](std::string_view line) {
    const auto words = shell_words(line);
    if (words.size() < 2 || (words[0] != "import" && words[0] != "from")) return;
    const auto package = words[1].substr(0, words[1].find_first_of(".,"));
    looks.torch |= package == "torch" || package == "accelerate" || package == "deepspeed";
    looks.transformers |= package == "transformers" || package == "trl";
    looks.lightning |= package == "lightning" || package == "pytorch_lightning";
    looks.hydra |= package == "hydra";
    looks.muster |= package == "muster";
  });
  const auto has = [&](std::string_view word) { return program.text.find(word) != std::string::npos; };
  // A program may import transformers for a model alone.
  looks.torch |= looks.transformers && !has("Trainer(");
  looks.transformers &= has("Trainer(");
  for (const auto* sign : {".backward(", ".fit(", "trainer.train(", "Trainer("}) looks.points += has(sign) ? 2 : 0;
  if (has("__main__")) looks.points += 1;
  const auto name = base::lower_case(program.name);
  for (const auto* sign : {"train", "finetune", "fine_tune", "main"}) looks.points += name.starts_with(sign) ? 3 : 0;
  for (const auto* sign : {"test", "conftest", "setup", "eval", "data", "model"}) {
    looks.points -= name.starts_with(sign) ? 4 : 0;
  }
  return looks;
}

/// One command of a shell script that starts a program of the folder.
struct ProgramStart {
  std::string program, starter = "python", script;
  unsigned processes = 1;
  bool asks_slurm = false;
  std::vector<std::string> launch, arguments;
};

/// The number of an option such as --nproc_per_node=4 or -n 4; 0: the words have none that says a number.
unsigned number_in(const std::vector<std::string>& words, std::initializer_list<std::string_view> names) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto equals = words[i].find('=');
    const auto name = base::replaced(words[i].substr(0, equals), "_", "-");
    if (std::ranges::find(names, name) == names.end()) continue;
    const auto text = equals != std::string::npos ? words[i].substr(equals + 1)
                      : i + 1 < words.size()      ? words[i + 1]
                                                  : std::string();
    const auto number = base::whole_number<unsigned>(text);
    if (number && *number >= 1 && *number <= kMostProcesses) return *number;
  }
  return 0;
}

bool is_plain(const std::string& word) {
  return word.find_first_of("$`\"'\\|&;<>*?(){}") == std::string::npos;
}

/// The start in one whole command line. `tasks`: the script's #SBATCH --ntasks-per-node.
std::optional<ProgramStart> start_in(const std::vector<std::string>& words, unsigned tasks) {
  const auto program = std::ranges::find_if(words, is_python);
  if (program == words.end() || words.front().starts_with("#")) return std::nullopt;
  ProgramStart start;
  start.program = fs::path(*program).filename().native();
  const std::vector<std::string> before(words.begin(), program);
  const auto has = [&](std::string_view word) {
    return std::ranges::any_of(before, [&](const auto& one) { return fs::path(one).filename() == word; });
  };
  const bool torchrun = has("torchrun") || has("torch.distributed.run") || has("torch.distributed.launch");
  if (torchrun || has("deepspeed")) {
    start.starter = "torchrun";
    start.processes = number_in(before, {"--nproc-per-node", "--num-gpus"});
  } else if (const auto launcher = std::ranges::find(before, "accelerate"); launcher != before.end()) {
    start.starter = "accelerate";
    start.processes = number_in(before, {"--num-processes"});
    if (std::all_of(launcher, before.end(), is_plain)) start.launch.assign(launcher, before.end());
  } else if (has("srun")) {
    start.starter = "srun";
    start.processes = tasks > 0 ? tasks : number_in(before, {"--ntasks-per-node", "--ntasks", "-n"});
  } else if (!has("python") && !has("python3") && !before.empty()) {
    return std::nullopt;
  }
  start.processes = std::max(start.processes, 1U);
  if (std::all_of(program, words.end(), is_plain)) start.arguments.assign(program + 1, words.end());
  return start;
}

/// The starts in a script, in its order.
std::vector<ProgramStart> starts_in(const SourceText& script) {
  std::vector<ProgramStart> starts;
  std::string whole;
  unsigned tasks = 0;
  bool asks_slurm = false;
  each_line(script.text, [&](std::string_view line) {
    if (line.starts_with("#SBATCH")) {
      asks_slurm = true;
      if (const auto number = number_in(shell_words(line), {"--ntasks-per-node"}); number > 0) tasks = number;
      return;
    }
    const bool goes_on = line.ends_with("\\");
    whole += std::string(line.substr(0, line.size() - (goes_on ? 1 : 0))) + " ";
    if (goes_on) return;
    const auto words = shell_words(whole);
    whole.clear();
    if (words.empty()) return;
    if (auto start = start_in(words, tasks)) {
      start->script = script.name;
      start->asks_slurm = asks_slurm;
      starts.push_back(std::move(*start));
    }
  });
  return starts;
}

}  // namespace

std::vector<SourceText> sources_in(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const auto extension = entry.path().extension();
    const bool wanted = extension == ".py" || extension == ".sh" || extension == ".slurm" || extension == ".sbatch";
    std::error_code error;
    if (wanted && entry.is_regular_file(error) && entry.file_size(error) <= kMostSourceBytes && !error) {
      files.push_back(entry.path());
    }
  }
  std::ranges::sort(files);
  files.resize(std::min(files.size(), kMostSources));
  std::vector<SourceText> sources;
  for (const auto& file : files) {
    std::ifstream in(file, std::ios::binary);
    sources.push_back({file.filename().native(), std::string(std::istreambuf_iterator<char>(in), {})});
  }
  return sources;
}

std::optional<TrainerFound> find_trainer(const std::vector<SourceText>& sources) {
  std::vector<ProgramStart> starts;
  for (const auto& source : sources) {
    if (is_python(source.name)) continue;
    for (auto& start : starts_in(source)) starts.push_back(std::move(start));
  }
  const auto start_of = [&](const std::string& program) {
    return std::ranges::find(starts, program, &ProgramStart::program);
  };
  const SourceText* best = nullptr;
  Looks looks;
  std::vector<std::string> all;
  for (const auto& source : sources) {
    if (!is_python(source.name)) continue;
    auto seen = look_at(source);
    if (!seen.trains()) continue;
    if (start_of(source.name) != starts.end()) seen.points += 5;
    if (seen.points > 0) all.push_back(source.name);
    if (best != nullptr && seen.points <= looks.points) continue;
    best = &source;
    looks = seen;
  }
  if (best == nullptr) return std::nullopt;
  TrainerFound found{.file = best->name, .hydra = looks.hydra, .reports = looks.muster};
  found.library = looks.lightning ? Library::kLightning : looks.transformers ? Library::kTransformers : Library::kTorch;
  std::erase(all, best->name);
  found.others = std::move(all);
  if (const auto start = start_of(best->name); start != starts.end()) {
    found.starter = start->starter;
    found.script = start->script;
    found.processes = start->processes;
    found.asks_slurm = start->asks_slurm;
    found.launch = start->launch;
    found.arguments = start->arguments;
  }
  return found;
}

namespace {

std::string text_of_command(const std::vector<std::string>& words) {
  std::string list;
  for (const auto& word : words) base::append(list, jobfile::toml_text(word));
  return "command = [" + list + "]\n";
}

/// accelerate and Lightning start the ranks of a node themselves. muster starts the ranks of any other program.
bool starts_ranks_itself(const TrainerFound& found) {
  return found.starter == "accelerate" || found.library == Library::kLightning;
}

std::string first_lines(const TrainerFound& found, const std::string& file) {
  static const std::map<Library, const char*> kUses{{Library::kTorch, "a training loop of its own"},
                                                    {Library::kTransformers, "the Trainer of transformers"},
                                                    {Library::kLightning, "the Trainer of Lightning"}};
  const auto word = slurm::bash_quote(file);
  std::string text = "# Runs " + found.file + ", which has " + kUses.at(found.library) + ".\n";
  text += "# Try it in this terminal, without a controller:  muster submit --executor debug " + word + "\n";
  text += "# Submit it, and watch:                           muster submit --follow " + word + "\n";
  if (!found.others.empty()) text += "# Other programs of this folder: " + base::joined(found.others) + "\n";
  if (found.asks_slurm) {
    text += "# " + found.script + " also runs as it is:  muster submit " + slurm::bash_quote(found.script) + "\n";
  }
  return text;
}

std::string program_keys(const TrainerFound& found) {
  std::string text = "name = " + jobfile::toml_text(fs::path(found.file).stem().native()) + "\n";
  std::vector<std::string> words{"python3", found.file};
  if (found.starter == "accelerate") {
    words = found.launch.empty()
                ? std::vector<std::string>{"accelerate", "launch", "--num_processes", std::to_string(found.processes)}
                : found.launch;
    words.push_back(found.file);
  }
  words.insert(words.end(), found.arguments.begin(), found.arguments.end());
  if (!found.script.empty()) text += "# As " + found.script + " starts it; compare the words there.\n";
  if (found.hydra) {
    text +=
        "# Hydra's overrides are words of the command: \"optimizer.lr=3e-4\". Or:  muster submit FILE -- "
        "optimizer.lr=3e-4\n";
  }
  text += text_of_command(words);
  if (starts_ranks_itself(found)) {
    text += std::string("launcher = \"own\"              # ") +
            (found.starter == "accelerate" ? "accelerate" : "Lightning") +
            " starts the ranks of a node itself; see docs/launchers.md\n";
  }
  return text;
}

std::string resource_keys(const TrainerFound& found, bool has_gpus) {
  const auto count = std::to_string(found.processes);
  const bool own = starts_ranks_itself(found);
  std::string text = "\n[resources]\n";
  if (!own) {
    text +=
        "# Each rank is a process with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, as torchrun sets "
        "them";
    text += found.starter == "torchrun" ? ".\n# So the program needs no torchrun in front of it.\n" : ".\n";
    text += "ranks_per_node = " + count + "\n";
  }
  text += std::string(has_gpus ? "" : "# ") +
          "gpus_per_rank = " + (own ? count + "             # all GPUs of the command" : "1") + "\n";
  text +=
      "# time_limit = \"12h\"          # before it the ranks are asked to save, and the job goes on in a next "
      "attempt\n";
  return text;
}

std::string environment_keys() {
  return "\n[env]\n"
         "# OMP_NUM_THREADS = \"1\"\n"
         "# PATH, VIRTUAL_ENV, CONDA_*, PYTHONPATH and LD_LIBRARY_PATH come from the shell that submits.\n";
}

std::string ways_to_report(const TrainerFound& found) {
  std::string text =
      "\n# Three ways to curves, steps and checkpoints. Each is enough; docs/report.md has them all.\n"
      "# 1. Three lines of the program, with muster's package (pip install ./python, in muster's sources):\n"
      "#      run = muster.init()\n"
      "#      first = run.resume(load_newest_checkpoint) + 1     # load returns the checkpoint's step, or 0\n"
      "#      run.log(step, loss=loss)                           # and run.checkpoint(path, step) after each save\n";
  if (found.library == Library::kLightning) {
    text += "# 2. A callback:  Trainer(callbacks=[muster.lightning.Callback()])\n";
  } else if (found.library == Library::kTransformers) {
    text += "# 2. A callback:  Trainer(..., callbacks=[muster.hf.Callback()])\n";
  } else {
    text += "# 2. Callbacks, for programs with a Trainer: muster.hf.Callback() and muster.lightning.Callback().\n";
  }
  text +=
      "# 3. Nothing in the program, and [report] here: what the log, TensorBoard's files and checkpoints look like.\n";
  const std::string mark = found.reports ? "# " : "";
  if (found.reports) text += "# The program imports muster, so it reports by itself, and [report] is not needed.\n";
  text += "# Change the patterns to what the program prints: the first group is the value.\n";
  text += mark + "[report]\n";
  if (found.library == Library::kTransformers) {
    text += "# The Trainer prints no step, so its lines are counted. The callback tells the steps.\n";
    text += mark + "log = {loss = '''['\"]loss['\"]: '?([-\\d.e]+)'''}\n";
  } else {
    text += mark + "log = {step = '(?i)\\bstep\\W{0,3}(\\d+)', loss = '(?i)\\bloss\\W{0,3}([\\d.]+(?:e[-+]?\\d+)?)'}\n";
  }
  text += "# checkpoints = \"" +
          std::string(found.library == Library::kTransformers ? "out/checkpoint-*" : "checkpoints/step-*") +
          "\"     # where the program saves\n# tensorboard = \"runs\"\n";
  return text;
}

}  // namespace

std::string job_file_of(const TrainerFound& found, const std::string& file, bool has_gpus) {
  return first_lines(found, file) + program_keys(found) + resource_keys(found, has_gpus) + environment_keys() +
         ways_to_report(found);
}

}  // namespace cli
