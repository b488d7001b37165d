#include "slurm/batch_script.h"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "base/words.h"
#include "batch_script_parts.h"
#include "slurm/host_list.h"
#include "slurm/slurm_job.h"

namespace slurm {
namespace {

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_@%+=:,./-").find(c) != std::string_view::npos;
}

/// The text with each control character replaced by a space.
std::string on_one_line(std::string text) {
  for (auto& c : text) {
    if (has_control({&c, 1})) c = ' ';
  }
  return text;
}

/// Quotes a value of an #SBATCH line by sbatch's own rules, which differ from a shell's: a backslash protects any
/// character, even inside quotes.
std::string sbatch_quote(const std::string& value) {
  const auto line = on_one_line(value);
  if (!line.empty() && shell_quote(line) == line) return line;
  return "\"" + base::replaced(base::replaced(line, "\\", "\\\\"), "\"", "\\\"") + "\"";
}

/// True if no pattern of Slurm can express this literal path. The script then opens the file itself.
bool needs_redirection(const LogFile& log) {
  return log.literal && (has_control(log.path) || log.path.find('\\') != std::string::npos);
}

/// The word quoted for bash, with each index mark replaced by the array's task id.
std::string words_with_index(const std::string& word, const std::string& index_mark) {
  if (index_mark.empty() || word.find(index_mark) == std::string::npos) return bash_quote(word);
  std::string quoted;
  for (std::size_t at = 0;;) {
    const auto mark = word.find(index_mark, at);
    const auto piece = word.substr(at, mark == std::string::npos ? mark : mark - at);
    if (!piece.empty()) quoted += bash_quote(piece);
    if (mark == std::string::npos) return quoted;
    quoted += "\"$SLURM_ARRAY_TASK_ID\"";
    at = mark + index_mark.size();
  }
}

void ask(Options& options, const std::string& name, const std::string& value) {
  if (!value.empty()) options[name] = value;
}

Options options_of(const BatchScript& s) {
  Options options;
  ask(options, "job-name", on_one_line(s.name));
  ask(options, "comment", on_one_line(s.comment));
  if (!has_control(s.chdir)) ask(options, "chdir", s.chdir);
  ask(options, "output", needs_redirection(s.output) ? "/dev/null" : log_pattern(s.output, s.index_mark));
  options["open-mode"] = "append";
  if (s.array) {
    options["array"] = compress_tasks(s.array->tasks) +
                       (s.array->parallelism > 0 ? "%" + std::to_string(s.array->parallelism) : std::string());
  }
  for (const auto& [name, value] : s.options) {
    if (is_option_name(name)) options[name] = value;
  }
  return options;
}

std::string option_line(const std::string& name, const std::optional<std::string>& value) {
  return "#SBATCH --" + name + (value ? "=" + sbatch_quote(*value) : std::string()) + "\n";
}

/// After the command's start: the signals that forward.bash has kept for it.
constexpr const char* kSendEarlySignals =
    "\n  for muster_signal in $muster_early; do kill \"-$muster_signal\" \"$muster_pid\"; done";

/// A part of the script: a file of slurm/script after an empty line, with `with` in the place of `mark`.
std::string part(std::string_view file, std::string_view mark = {}, std::string_view with = {}) {
  const auto found = std::ranges::find(script::kTexts, file, &script::EmbeddedText::name);
  if (found == std::end(script::kTexts)) throw std::logic_error("no embedded text " + std::string(file));
  return "\n" + base::replaced(std::string(found->text), mark, with);
}

/// The lines, each but the last with a line end.
std::string text_of(const std::vector<std::string>& lines) {
  std::string text;
  for (const auto& line : lines) text += (&line == &lines.front() ? "" : "\n") + line;
  return text;
}

/// `module` is a function that login shells have. A batch script has none where sbatch hands no functions on. Its files
/// are those of Environment Modules and of Lmod.
bool uses_modules(const Steps& steps) {
  const auto has_word = [](const std::string& line) { return line.find("module ") != std::string::npos; };
  return std::ranges::any_of(steps.setup, has_word) || std::ranges::any_of(steps.health_check, has_word);
}

/// The part of the script that runs before anything else writes or reads files.
std::string preparation(const BatchScript& s) {
  std::string text;
  if (s.steps.leave_when_restarted) text += part("restarted.bash");
  if (needs_redirection(s.output)) text += "\nexec >>" + words_with_index(s.output.path, s.index_mark) + " 2>&1\n";
  if (has_control(s.chdir)) text += "\ncd " + bash_quote(s.chdir) + " || exit 1\n";
  if (uses_modules(s.steps)) text += part("modules.bash");
  if (!s.steps.setup.empty()) text += "\n# setup\n" + text_of(s.steps.setup) + "\n";
  return text;
}

// The shell survives TERM, which would end the job and leave the ranks less time to save.
constexpr const char* kTraps =
    "\nmuster_exit=\n"
    "muster_signalled=\n"
    "trap 'muster_signalled=1' TERM\n";

std::string command_line(const BatchScript& s) {
  const auto& launch = s.launch;
  std::vector<std::string> words;
  if (launch.in_script) {
    for (const auto& word : launch.command) words.push_back(words_with_index(word, s.index_mark));
    return base::joined(words, " ");
  }
  words = {"srun", "--unbuffered"};
  if (launch.kill_on_bad_exit) words.push_back("--kill-on-bad-exit=1");
  // Since Slurm 22.05 srun no longer inherits this option from sbatch.
  if (const auto cpus = s.options.find("cpus-per-task"); cpus != s.options.end()) {
    words.push_back("--cpus-per-task=" + cpus->second.value_or(""));
  }
  words.insert(words.end(), launch.srun_args.begin(), launch.srun_args.end());
  for (auto& word : words) word = bash_quote(word);
  for (const auto& word : launch.command) words.push_back(words_with_index(word, s.index_mark));
  return base::joined(words, " ");
}

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

std::string shell_quote(const std::string& word) {
  if (!word.empty() && std::ranges::all_of(word, is_word_character)) return word;
  return "'" + base::replaced(word, "'", "'\"'\"'") + "'";
}

std::string bash_quote(const std::string& word) {
  if (!has_control(word)) return shell_quote(word);
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string quoted = "$'";
  for (const char c : word) {
    if (c == '\n') {
      quoted += "\\n";
    } else if (has_control({&c, 1})) {
      // An escape of three octal digits ends by itself. \x would also take a digit that follows.
      const auto value = static_cast<unsigned char>(c);
      quoted += {'\\', kHex[value >> 6], kHex[(value >> 3) & 7], kHex[value & 7]};
    } else if (c == '\'' || c == '\\') {
      quoted += {'\\', c};
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

bool has_control(std::string_view text) {
  return std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

bool is_option_name(std::string_view name) {
  const auto fits = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; };
  return !name.empty() && name.front() != '-' && std::ranges::all_of(name, fits);
}

std::string log_pattern(const LogFile& log, const std::string& index_mark) {
  if (!log.literal) return log.path;
  return base::replaced(base::replaced(log.path, "%", "%%"), base::replaced(index_mark, "%", "%%"), "%a");
}

std::string render(const BatchScript& s) {
  std::string text = "#!/bin/bash\n";
  for (const auto& [name, value] : options_of(s)) text += option_line(name, value);
  text += preparation(s);
  text += kTraps;
  if (s.launch.in_script) text += part("forward.bash");
  if (const auto& lines = s.steps.health_check; !lines.empty()) {
    text += base::replaced(part("health_check.bash", "@EXIT@", std::to_string(kUnfitExit)), "@LINES@",
                           bash_quote(text_of(lines)));
  }
  // The command runs in the background, because bash runs traps only when `wait` returns. A wait that a signal
  // interrupted is repeated. A repeated wait returns 127 for a child that an earlier wait has already counted.
  const auto* early = s.launch.in_script ? kSendEarlySignals : "";
  text += base::replaced(part("command.bash", "@EARLY@", early), "@COMMAND@", command_line(s));
  if (const auto& lines = s.steps.teardown; !lines.empty()) {
    text += part("teardown.bash", "@LINES@", text_of(lines));
  }
  return text + "exit \"$muster_exit\"\n";
}

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
