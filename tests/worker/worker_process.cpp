#include "tests/worker/worker_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>
#include <thread>

#include "tests/places.h"
#include "tests/worker/temporary_folder.h"

namespace worker::testing {
namespace {

/// Parses a flat JSON object as JsonlReporter writes it, with values unquoted.
Line parse_line(const std::string& text) {
  Line out;
  std::size_t at = 1;
  while (at < text.size() && text[at] != '}') {
    const auto key_end = text.find('"', at + 1);
    const std::string key = text.substr(at + 1, key_end - at - 1);
    at = key_end + 2;
    std::size_t end = at;
    if (text[at] == '"') {
      for (end = at + 1; text[end] != '"'; ++end) end += text[end] == '\\';
      out[key] = text.substr(at + 1, end - at - 1);
      ++end;
    } else {
      end = text.find_first_of(",}", at);
      out[key] = text.substr(at, end - at);
    }
    at = text[end] == ',' ? end + 1 : end;
  }
  return out;
}

/// Polls until `done` holds or `limit` has passed.
template <class Condition>
bool wait_until(std::chrono::milliseconds limit, Condition done) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

}  // namespace

Process::Process(const std::string& program, const std::vector<std::string>& arguments,
                 const std::map<std::string, std::string>& environment, const std::filesystem::path& log,
                 std::int64_t address_space_bytes) {
  std::vector<std::string> words = {program}, variables;
  words.insert(words.end(), arguments.begin(), arguments.end());
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  std::vector<char*> argv, envp;
  for (auto& word : words) argv.push_back(word.data());
  for (auto& variable : variables) envp.push_back(variable.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ != 0) return;
  const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  ::dup2(fd, 1);
  ::dup2(fd, 2);
  if (address_space_bytes > 0) {
    const rlimit limit{static_cast<rlim_t>(address_space_bytes), static_cast<rlim_t>(address_space_bytes)};
    ::setrlimit(RLIMIT_AS, &limit);
  }
  ::execve(program.c_str(), argv.data(), envp.data());
  ::_exit(127);
}

Process::~Process() {
  if (status_) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Process::signal(int number) const {
  if (!status_) ::kill(pid_, number);
}

void Process::signal_and_wait(int number) const {
  signal(number);
  const auto status = "/proc/" + std::to_string(pid_) + "/status";
  wait_until(5s, [&] {
    const std::string text = read_file(status);
    const auto at = text.find("ShdPnd:");
    return at == std::string::npos || (std::stoull(text.substr(at + 7, 24), nullptr, 16) >> (number - 1) & 1) == 0;
  });
}

std::optional<int> Process::wait(std::chrono::milliseconds limit) {
  wait_until(limit, [&] {
    int status = 0;
    if (!status_ && ::waitpid(pid_, &status, WNOHANG) == pid_) {
      status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return status_.has_value();
  });
  return status_;
}

Ranks::Ranks(const std::filesystem::path& folder, const std::string& run_json, const Options& options)
    : folder_(folder), options_(options) {
  const auto run_file = folder / (options.label + ".json");
  write_file(run_file, run_json);
  for (int rank = 0; rank < options.world_size; ++rank) {
    std::map<std::string, std::string> environment = {{"RANK", std::to_string(rank)},
                                                      {"WORLD_SIZE", std::to_string(options.world_size)},
                                                      {"MASTER_ADDR", "127.0.0.1"},
                                                      {"MASTER_PORT", std::to_string(master_port_.number())},
                                                      {"OMP_NUM_THREADS", "1"},
                                                      {"HOME", folder.native()},
                                                      {"MUSTER_METRICS_FILE", file(rank, ".jsonl").native()}};
    if (options.own_homes) environment["HOME"] = (folder / ("home." + std::to_string(rank))).native();
    if (options.attempt > 0) environment["MUSTER_ATTEMPT"] = std::to_string(options.attempt);
    for (const char* name : {"ASAN_OPTIONS", "LSAN_OPTIONS", "UBSAN_OPTIONS"}) {
      if (const char* value = std::getenv(name); value != nullptr) environment[name] = value;
    }
    processes_.push_back(std::make_unique<Process>(::test::built_program("muster-worker"),
                                                   std::vector<std::string>{"--run-file", run_file}, environment,
                                                   file(rank, ".log"), options.address_space_bytes));
  }
}

std::vector<int> Ranks::wait(std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  std::vector<int> codes;
  for (int rank = 0; rank < options_.world_size; ++rank) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    codes.push_back(wait_rank(rank, std::max(left, 0ms)));
  }
  return codes;
}

int Ranks::wait_rank(int number, std::chrono::milliseconds limit) {
  return processes_.at(static_cast<std::size_t>(number))->wait(limit).value_or(-1);
}

bool Ranks::reached(int number, std::int64_t step, std::chrono::milliseconds limit) const {
  return wait_until(limit, [&] {
    const auto steps = lines(number, "step");
    return !steps.empty() && std::stoll(steps.back().at("step")) >= step;
  });
}

std::vector<Line> Ranks::lines(int number, const std::string& kind) const {
  std::vector<Line> out;
  std::istringstream in(read_file(file(number, ".jsonl")));
  for (std::string text; std::getline(in, text);) {
    if (!text.ends_with('}')) continue;  // the line is still being written
    auto line = parse_line(text);
    const bool is_step = line.contains("step") && !line.contains("checkpoint");
    if (kind == "step" ? is_step : line.contains(kind)) out.push_back(std::move(line));
  }
  return out;
}

std::string Ranks::log(int number) const {
  return read_file(file(number, ".log"));
}

std::filesystem::path Ranks::file(int number, const char* extension) const {
  return folder_ / (options_.label + "." + std::to_string(number) + extension);
}

}  // namespace worker::testing
