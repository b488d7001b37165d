#include <algorithm>
#include <set>

#include "slurm/batch_script.h"
#include "slurm/batch_text.h"
#include "slurm/text.h"

namespace slurm {
namespace {

/// Collects what a batch script cannot express.
class Check {
 public:
  void text(const std::string& what, const std::string& value) {
    if (value.find('\0') != std::string::npos) add(what + " has a zero byte; no program can be given one");
  }

  /// Checks a value of an #SBATCH line.
  void line(const std::string& what, const std::string& value) {
    text(what, value);
    if (has_control(value)) add(what + " has a line break or another control character; leave it out");
  }

  void shell(const std::string& what, const std::vector<std::string>& lines) {
    for (const auto& line : lines) {
      text(what, line);
      if (line.find('\r') != std::string::npos) {
        add(what + " has a carriage return, which Slurm refuses; save it with plain line ends");
      }
    }
  }

  void log(const std::string& what, const LogFile& log) {
    text(what, log.path);
    if (!log.literal && has_control(log.path)) {
      add(what + " is a pattern with a line break; make it a literal path or leave the line break out");
    }
  }

  void add(std::string problem) { problems_.push_back(std::move(problem)); }
  std::vector<std::string> take() { return std::move(problems_); }

 private:
  std::vector<std::string> problems_;
};

void check_array(Check& check, const BatchScript& s) {
  if (!s.array) {
    if (!s.index_mark.empty()) check.add("an index mark without an array; leave one out or add the other");
    return;
  }
  if (s.array->tasks.empty()) check.add("an array without tasks; give at least one task id");
  const std::set<std::uint32_t> once(s.array->tasks.begin(), s.array->tasks.end());
  if (once.size() != s.array->tasks.size()) check.add("a task id of the array comes twice");
}

void check_launch(Check& check, const Launch& launch) {
  if (launch.command.empty()) check.add("there is no command to run");
  for (const auto& word : launch.command) check.text("the command", word);
  for (const auto& word : launch.srun_args) check.text("srun's arguments", word);
}

void check_steps(Check& check, const Steps& steps) {
  check.shell("setup", steps.setup);
  check.shell("the health check", steps.health_check);
  check.shell("teardown", steps.teardown);
}

}  // namespace

std::vector<std::string> problems(const BatchScript& s) {
  Check check;
  check.text("the name", s.name);
  check.text("the comment", s.comment);
  check.text("the folder", s.chdir);
  if (!s.chdir.empty() && !s.chdir.starts_with('/')) check.add("the folder '" + s.chdir + "' must be absolute");
  check.log("output", s.output);
  check_array(check, s);
  check_steps(check, s.steps);
  check_launch(check, s.launch);
  for (const auto& [name, value] : s.options) {
    if (!is_option_name(name)) check.add("'" + name + "' is no option of sbatch");
    check.line("option " + name, value.value_or(""));
  }
  return check.take();
}

}  // namespace slurm
