#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/command.h"

namespace slurm {

/// A CommandRunner without processes. Each program's answers are prepared, and every command is recorded. It keeps the
/// promises of CommandRunner (see command_test.cpp): output is limited, and unknown programs cannot start.
class ScriptedRunner : public base::CommandRunner {
 public:
  using Program = std::function<base::CommandResult(const base::Command&)>;

  void on(const std::string& program, Program answer) { programs_[program] = std::move(answer); }

  base::CommandResult run(const base::Command& command) override {
    const std::scoped_lock lock(mutex_);
    commands.push_back(command);
    const auto& name = command.argv.at(0);
    const auto found = programs_.find(name);
    base::CommandResult result;
    if (found == programs_.end()) {
      result.could_not_start = name + ": not found in PATH";
      return result;
    }
    result = found->second(command);
    cut(result.out, result.out_cut, command.max_output_bytes);
    cut(result.err, result.err_cut, command.max_output_bytes);
    return result;
  }

  std::vector<base::Command> commands;

 private:
  static void cut(std::string& text, bool& was_cut, std::size_t limit) {
    was_cut = text.size() > limit;
    if (was_cut) text.resize(limit);
  }

  std::map<std::string, Program> programs_;
  std::mutex mutex_;
};

inline base::CommandResult finished(int exit_code, const std::string& out = {}, const std::string& err = {}) {
  base::CommandResult result;
  result.exit_code = exit_code;
  result.out = out;
  result.err = err;
  return result;
}

inline base::CommandResult killed_by(int signal) {
  base::CommandResult result;
  result.signal = signal;
  return result;
}

inline base::CommandResult too_slow(const base::Command& command) {
  base::CommandResult result;
  result.timed_out = true;
  result.took = command.time_limit;
  return result;
}

}  // namespace slurm
