#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <utility>

#include "base/fd.h"
#include "base/gpus.h"
#include "cli/cli_command.h"
#include "cli/cli_text.h"
#include "cli/program_sketch.h"
#include "slurm/batch_script.h"
#include "starters.h"

namespace cli {
namespace {

constexpr std::string_view kFull = "full/", kSuffix = ".toml";
constexpr std::string_view kProgram = "program";  // in place of a training's name: a program of this folder

/// The recipes, each with the starter that it stands for.
constexpr std::pair<std::string_view, std::string_view> kOfRecipes[] = {
    {"causal_lm", "chess"}, {"seq2seq", "t5"}, {"classify", "bert"}, {"masked_lm", "masked-lm"}};

struct InitOptions {
  std::string name, file;
  bool full = false;
};

/// The starter that a name means: its own, or that of a recipe.
std::string_view starter_name(std::string_view name) {
  const auto found = std::ranges::find(kOfRecipes, name, [](const auto& row) { return row.first; });
  return found == std::end(kOfRecipes) ? name : found->second;
}

[[noreturn]] void fail(const std::string& what) {
  throw Failure(kUsage, what);
}

/// The text with `file` in place of its own name in the lines before the first key, where its commands are.
std::string naming(std::string_view text, const std::string& own_name, const std::string& file) {
  const auto head = std::min(text.size(), text.find("\nname = "));
  const std::string word = slurm::bash_quote(file);
  std::string out;
  std::size_t at = 0;
  for (auto found = text.find(own_name); found < head; found = text.find(own_name, at)) {
    out.append(text.substr(at, found - at)).append(word);
    at = found + own_name.size();
  }
  return out.append(text.substr(at));
}

/// Creates the file. A file that is there stays as it is.
void write_new(const std::filesystem::path& file, std::string_view text) {
  const base::Fd out(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!out && errno == EEXIST) fail(file.native() + " is there already; give another name: -o FILE");
  if (!out) fail("cannot write " + file.native() + ": " + std::strerror(errno));
  if (::write(out.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    const int error = errno;
    ::unlink(file.c_str());
    fail("cannot write " + file.native() + ": " + std::strerror(error));
  }
}

/// Writes a job file for the trainer of this folder.
int run_init_program(const InitOptions& options) {
  if (options.full) fail("--full is for the trainings that are built in; leave it out");
  std::error_code error;
  const auto folder = std::filesystem::current_path(error);
  if (error) throw Failure(kUsage, std::string(kNoWorkingFolder));
  std::vector<SourceText> sources;
  try {
    sources = sources_in(folder);
  } catch (const std::filesystem::filesystem_error& problem) {
    fail("cannot read " + folder.native() + ": " + problem.code().message());
  }
  const auto found = find_trainer(sources);
  if (!found) {
    fail("no *.py file of " + folder.native() +
         " imports torch, transformers, lightning or hydra; call it in the folder of the trainer, or submit a command "
         "without a job file: muster submit -- python3 train.py");
  }
  const auto file = options.file.empty() || options.file == "-"
                        ? std::filesystem::path(found->file).stem().native() + std::string(kSuffix)
                        : options.file;
  const auto text = job_file_of(*found, file, base::has_gpu_device());
  if (options.file == "-") {
    std::cout << text;
    return 0;
  }
  write_new(file, text);
  std::cout << "wrote " << file << " for " << found->file << "; try it: muster submit --executor debug "
            << slurm::bash_quote(file) << "\n";
  return 0;
}

int run_init(Session&, const InitOptions& options) {
  if (options.name == kProgram) return run_init_program(options);
  const auto text = starter(options.name, options.full);
  if (text.empty()) {
    fail("there is no job file \"" + options.name + "\"" + (options.full ? " of full size" : "") +
         "; want one of: " + joined(starters(options.full), " ") + ", or program");
  }
  if (options.file == "-") {
    std::cout << text;
    return 0;
  }
  const std::string own_name = std::string(starter_name(options.name)) + std::string(kSuffix);
  const std::filesystem::path file = options.file.empty() ? own_name : options.file;
  write_new(file, naming(text, own_name, file.native()));
  std::cout << "wrote " << file.native() << "; its first lines say how to make the data and submit it\n";
  return 0;
}

}  // namespace

std::string_view starter(std::string_view name, bool full) {
  const auto wanted = std::string(full ? kFull : "") + std::string(starter_name(name)) + std::string(kSuffix);
  const auto found = std::ranges::find(kTexts, wanted, &EmbeddedText::name);
  return found == std::end(kTexts) ? std::string_view() : found->text;
}

std::vector<std::string> starters(bool full) {
  std::vector<std::string> names;
  for (const auto& [file, text] : kTexts) {
    if (file.starts_with(kFull) != full) continue;
    const auto name = file.substr(full ? kFull.size() : 0);
    names.emplace_back(name.substr(0, name.size() - kSuffix.size()));
  }
  return names;
}

void define_init(CLI::App& app, Session& session) {
  auto options = add_action<InitOptions>(app, session, run_init);
  app.add_option("RECIPE", options->name,
                 "Which training: " + joined(starters(false), ", ") + "; or program: the trainer of this folder")
      ->required();
  app.add_option(
      "-o,--output", options->file,
      "The file to write; - prints it (default: RECIPE.toml; causal_lm writes chess.toml; train.toml for train.py)");
  app.add_flag("--full", options->full, "The training at its full size, for a cluster");
}

}  // namespace cli
