#include <sys/mman.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/command.h"
#include "base/words.h"
#include "cli/cli_command.h"
#include "spec/infer_flags.h"
#include "spec/jobfile/run_file.h"

namespace cli {
namespace {

int data_failure(const std::string& what) {
  std::cerr << "muster data: " << what << "\n";
  return kUsage;
}

namespace fs = std::filesystem;

constexpr std::chrono::seconds kWorkerAnswersIn{20};  // it loads LibTorch

struct InferOptions {
  std::string command, model;
  std::vector<std::string> texts;
  // The options of spec::kInferFlags, in their order: whether the option was given, and its value.
  std::vector<bool> given = std::vector<bool>(spec::kInferFlags.size());
  std::vector<std::string> values = std::vector<std::string>(spec::kInferFlags.size());
};

/// The text in a file without a name, which the next program can open under the path that is returned.
std::string nameless_file(const std::string& text) {
  const int fd = memfd_create("run file", 0);
  std::string_view left = text;
  while (fd >= 0 && !left.empty()) {
    const auto written = write(fd, left.data(), left.size());
    if (written < 0 && errno != EINTR) break;
    left.remove_prefix(written < 0 ? 0 : static_cast<std::size_t>(written));
  }
  if (fd < 0 || !left.empty())
    throw Failure(kUsage, std::string("cannot pass the run file on: ") + std::strerror(errno));
  return "/proc/self/fd/" + std::to_string(fd);
}

bool is_number(const std::string& text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

/// A job's checkpoints, and its run file for those that do not describe their model.
std::vector<std::string> model_of_job(Session& session, const std::string& number) {
  std::int64_t id = 0;
  try {
    id = std::stoll(number);
  } catch (const std::out_of_range&) {
    throw Failure(kNotFound, "there is no job " + number);
  }
  auto& client = session.client();
  const auto job = client.call(&JobStub::Get, of_job(id));
  if (!job.spec().has_recipe()) {
    throw Failure(kUsage, "job " + number +
                              " runs a command, and muster does not know its model; give the folder of a model that "
                              "it has exported");
  }
  const std::string& folder = job.checkpoint_folder();
  std::error_code error;
  if (folder.empty() || !fs::is_directory(folder, error)) {
    throw Failure(kUsage, "job " + number + " has no checkpoints that this machine sees (" +
                              (folder.empty() ? "it has not started" : folder) +
                              "); wait for the first one, or run this where its folder is");
  }
  return {folder, "--run-file", nameless_file(jobfile::run_file(job.spec(), folder, "cache").dump())};
}

int run_infer(Session& session, const InferOptions& options) {
  const auto program = must_find("muster-infer", "and it runs the models");
  std::vector<std::string> words{program, options.command};
  std::error_code error;
  if (is_number(options.model) && !fs::exists(options.model, error)) {
    const auto of_job = model_of_job(session, options.model);
    words.insert(words.end(), of_job.begin(), of_job.end());
  } else {
    words.push_back(options.model);
  }
  for (std::size_t i = 0; i < spec::kInferFlags.size(); ++i) {
    const auto& flag = spec::kInferFlags[i];
    if (!options.given[i]) continue;
    words.emplace_back(flag.name);
    if (!flag.value.empty()) words.push_back(options.values[i]);
  }
  if (!options.texts.empty()) words.emplace_back("--");
  words.insert(words.end(), options.texts.begin(), options.texts.end());
  become(program, std::move(words));
}

void define(CLI::App& app, Session& session, const std::string& command, unsigned bit) {
  auto options = add_action<InferOptions>(app, session, run_infer);
  options->command = command;
  app.add_option("model", options->model, "A job's number, or the folder of a model, of checkpoints, or of one of them")
      ->required()
      ->type_name("MODEL");
  app.add_option("texts", options->texts, "The texts; without any they are read from -f or standard input")
      ->type_name("TEXT");
  for (std::size_t i = 0; i < spec::kInferFlags.size(); ++i) {
    const auto& flag = spec::kInferFlags[i];
    if ((flag.commands & bit) == 0) continue;
    const std::string names = (flag.name == "--file" ? "-f," : "") + std::string(flag.name);
    const std::string meaning(flag.meaning);
    if (flag.value.empty()) {
      app.add_flag_function(
          names, [options, i](std::int64_t) { options->given[i] = true; }, meaning);
    } else {
      const auto take = [options, i](const std::string& value) {
        options->given[i] = true;
        options->values[i] = value;
      };
      app.add_option_function<std::string>(names, take, meaning)->type_name(std::string(flag.value));
    }
  }
}

}  // namespace

WorkerVersion ask_worker_version(const fs::path& worker) {
  base::ProcessRunner runner;
  const auto said = runner.run({.argv = {worker.native(), "--version"}, .time_limit = kWorkerAnswersIn});
  if (said.succeeded()) return {true, std::string(base::trimmed(said.out))};
  const std::string why = said.timed_out ? "it has not answered in " + std::to_string(kWorkerAnswersIn.count()) + " s"
                                         : said.could_not_start + said.err;
  return {false, worker.native() + " does not start: " + std::string(base::trimmed(why))};
}

std::string no_program(const std::string& name, const std::string& consequence) {
  const bool uses_torch = name == "muster-worker" || name == "muster-infer";
  return "there is no " + name + " beside muster or in PATH, " + consequence + "; " +
         (uses_torch ? "run pip install \"muster-hpc[worker]\", or build it with ./dev build"
                     : "build it with ./dev build");
}

void become(const std::filesystem::path& program, std::vector<std::string> words) {
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::cout << std::flush;
  ::execv(program.c_str(), argv.data());
  throw Failure(kUsage, "cannot start " + program.native() + ": " + std::strerror(errno));
}

std::filesystem::path must_find(const std::string& name, const std::string& consequence) {
  auto program = base::find_program(name);
  if (program.empty()) throw Failure(kUsage, no_program(name, consequence));
  return program;
}

std::optional<int> become_data(int argc, char** argv) {
  const int place = command_place(argc, argv);
  if (place == argc || std::string(argv[place]) != "data") return std::nullopt;
  const auto program = base::find_program("muster-data");
  if (program.empty()) {
    return data_failure(no_program("muster-data", "and it makes the data"));
  }
  std::string name = program.native();
  std::vector<char*> words{name.data()};
  words.insert(words.end(), argv + place + 1, argv + argc);
  words.push_back(nullptr);
  ::execv(program.c_str(), words.data());
  return data_failure("cannot start " + program.native() + ": " + std::strerror(errno) + "; build it with ./dev build");
}

void define_data(CLI::App& app, Session& session) {
  // For help and completion. become_data() takes every command line.
  const auto add = [&](const char* name, const char* summary) {
    add_action<JsonOption>(add_below(app, name, summary, std::string("muster data ") + name + " --help says more."),
                           session, [](Session&, const JsonOption&) { return static_cast<int>(kUsage); });
  };
  add("prepare", "Make a folder of data");
  add("show", "Print what a folder holds");
  add("check", "Read every byte of a folder and compare the checksums");
  add("decode", "Print one record");
}

void define_generate(CLI::App& app, Session& session) {
  define(app, session, "generate", spec::kGenerates);
}

void define_embed(CLI::App& app, Session& session) {
  define(app, session, "embed", spec::kEmbeds);
}

void define_classify(CLI::App& app, Session& session) {
  define(app, session, "classify", spec::kClassifies);
}

}  // namespace cli
