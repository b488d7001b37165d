#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <iostream>
#include <ranges>
#include <set>
#include <stdexcept>
#include <vector>

#include "cli/cli_command.h"
#include "cli/cli_text.h"
#include "cli/list.h"
#include "completion_scripts.h"
#include "controller/core/core_text.h"
#include "spec/jobfile/job_keys.h"
#include "spec/jobfile/sweep.h"
#include "spec/recipes.h"

namespace cli {
namespace {

using muster::v1::Job;
using Clock = std::chrono::steady_clock;

/// The longest wait for words. A shell is blocked while a person types.
constexpr std::chrono::seconds kWordsWithin{1};
constexpr std::uint32_t kWordsPage = 1000;
constexpr int kMostPages = 20;
constexpr std::size_t kMostWords = 1000;
constexpr std::uint32_t kSeriesOf = 5;

struct Word {
  std::vector<std::string> names;  // "--json", "-f"
  std::string meaning;
  bool takes_value = false;
  bool is_file = false;
  std::string choices;  // separated by spaces
  std::string asks;     // the question to the controller: "jobs submit", "sweeps", "series"; empty: none
};

struct Entry {
  std::string name, meaning;  // of the command; the name is empty for the program itself
  std::vector<Word> options;
  bool takes_file = false;  // the argument is a file
  std::string choices;      // for the argument
  std::string asks;         // for the argument, as in Word
};

/// The choices in the name of an option's type: "bash zsh fish" for "{bash,zsh,fish}".
std::string choices_of(const CLI::Option& option) {
  const auto type = option.get_type_name();
  const auto begin = type.find('{'), end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return {};
  auto list = type.substr(begin + 1, end - begin - 1);
  std::ranges::replace(list, ',', ' ');
  return list;
}

std::string followed_by_equals(const std::vector<std::string>& keys) {
  return joined(keys, "= ") + "=";
}

/// The words to offer for an option's value: keys of a job file for --set and --sweep, else the option's choices.
std::string keys_for(const CLI::App& app, const CLI::Option& option) {
  if (option.check_lname("sweep") && app.get_name() == "submit") return followed_by_equals(jobfile::sweepable_keys());
  if (!option.check_lname("set")) return choices_of(option);
  return followed_by_equals(jobfile::settable_keys());
}

/// The question to the controller for the values of this option or argument; see run_words().
std::string asks_of(const CLI::Option& option, const std::string& command) {
  const auto type = option.get_type_name();
  if (type.starts_with("JOB") && !type.starts_with("JOB.toml")) return "jobs " + command;
  if (type.starts_with("SERIES")) return "series";
  return type.starts_with("SWEEP") ? "sweeps" : "";
}

Entry entry_of(const CLI::App& app, const std::string& name);

/// Adds the commands below a command. Their names become choices of its argument, and their options its options.
void add_nested(const CLI::App& app, Entry& entry) {
  for (const auto* below : app.get_subcommands([](const CLI::App*) { return true; })) {
    const auto nested = entry_of(*below, below->get_name());
    append(entry.choices, nested.name + (nested.choices.empty() ? "" : " " + nested.choices), " ");
    for (const auto& word : nested.options) {
      const bool known =
          std::ranges::any_of(entry.options, [&](const Word& other) { return other.names == word.names; });
      if (!known) entry.options.push_back(word);
    }
  }
}

Entry entry_of(const CLI::App& app, const std::string& name) {
  Entry entry{name, app.get_description(), {}, false, {}, {}};
  for (const auto* option : app.get_options()) {
    if (option->get_positional()) {
      entry.takes_file |= option->get_name() == "file";
      if (entry.choices.empty()) entry.choices = choices_of(*option);
      if (entry.asks.empty()) entry.asks = asks_of(*option, name);
      continue;
    }
    Word word;
    for (const auto& letter : option->get_snames()) word.names.push_back("-" + letter);
    for (const auto& text : option->get_lnames()) word.names.push_back("--" + text);
    word.meaning = option->get_description();
    word.takes_value = option->get_items_expected_max() > 0;
    word.is_file = option->check_lname("token-file");
    word.choices = keys_for(app, *option);
    if (word.takes_value && word.choices.empty()) word.asks = asks_of(*option, name);
    entry.options.push_back(word);
  }
  if (!name.empty()) add_nested(app, entry);
  return entry;
}

std::vector<Entry> entries_of(const CLI::App& app) {
  std::vector<Entry> entries{entry_of(app, "")};
  for (const auto* command : app.get_subcommands([](const CLI::App* each) { return !each->get_group().empty(); })) {
    entries.push_back(entry_of(*command, command->get_name()));
  }
  return entries;
}

/// A script of cli/completion with these texts in the places of their marks.
std::string filled(std::string_view script, std::initializer_list<std::pair<std::string_view, std::string>> marks) {
  const auto found = std::ranges::find(completion::kTexts, script, &completion::EmbeddedText::name);
  if (found == std::end(completion::kTexts)) throw std::logic_error("no embedded text " + std::string(script));
  std::string text(found->text);
  for (const auto& [mark, with] : marks) text = base::replaced(std::move(text), mark, with);
  return text;
}

std::string names_of(const Entry& entry) {
  std::string names;
  for (const auto& word : entry.options) append(names, joined(word.names, " "), " ");
  return names;
}

std::string commands_of(const std::vector<Entry>& entries) {
  std::string names;
  for (const auto& entry : entries | std::views::drop(1)) append(names, entry.name, " ");
  return names;
}

/// The cases for an option that takes a value: choices, files, or nothing.
std::string bash_values(const std::vector<Entry>& entries) {
  std::string text;
  for (const auto& entry : entries) {
    for (const auto& word : entry.options) {
      if (!word.takes_value) continue;
      std::vector<std::string> patterns;
      // The program's own options may come before or after the command.
      for (const auto& name : word.names) patterns.push_back((entry.name.empty() ? "*" : entry.name) + ":" + name);
      text += "    " + joined(patterns, "|") + ")\n";
      if (word.is_file) text += "      COMPREPLY=($(compgen -f -- \"$cur\"))\n";
      if (!word.choices.empty()) text += "      COMPREPLY=($(compgen -W '" + word.choices + "' -- \"$cur\"))\n";
      if (!word.asks.empty())
        text += "      COMPREPLY=($(compgen -W \"$(_muster_ask " + word.asks + ")\" -- \"$cur\"))\n";
      if (word.choices.ends_with("=")) text += "      compopt -o nospace 2>/dev/null\n";
      text += "      return ;;\n";
    }
  }
  return text;
}

std::string bash_script(const std::vector<Entry>& entries) {
  std::string words;
  for (const auto& entry : entries | std::views::drop(1)) {
    words += "    " + entry.name + ")\n      words='" + names_of(entry) +
             (entry.choices.empty() ? "" : " " + entry.choices) + " --address --token-file'\n";
    if (entry.takes_file) {
      words +=
          "      if [[ $cur != -* ]]; then\n"
          "        COMPREPLY=($(compgen -f -X '!*.toml' -- \"$cur\") $(compgen -f -X '!*.sh' -- \"$cur\") $(compgen -d "
          "-- \"$cur\"))\n"
          "        compopt -o filenames 2>/dev/null\n"
          "        return\n"
          "      fi\n";
    }
    if (!entry.asks.empty()) {
      words += "      if [[ $cur != -* ]]; then\n        words=$(_muster_ask " + entry.asks +
               ")\n        compopt -o nosort 2>/dev/null\n      fi\n";
    }
    words += "      ;;\n";
  }
  return filled("muster.bash", {{"@VALUES@", bash_values(entries)},
                                {"@COMMANDS@", commands_of(entries)},
                                {"@OPTIONS@", names_of(entries.front())},
                                {"@WORDS@", words}});
}

/// Quotes the text for single quotes and for the brackets of a zsh specification.
std::string zsh_quoted(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
      continue;
    }
    if (c == '[' || c == ']' || c == ':') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_options(const Entry& entry) {
  std::string text;
  for (const auto& word : entry.options) {
    for (const auto& name : word.names) {
      text += " \\\n        '*" + name + "[" + zsh_quoted(word.meaning) + "]";
      if (word.is_file) {
        text += ":file:_files";
      } else if (!word.asks.empty()) {
        text += ":value:{_muster_ask " + word.asks + "}";
      } else if (!word.choices.empty()) {
        text += ":value:(" + zsh_quoted(word.choices) + ")";
      } else if (word.takes_value) {
        text += ":value: ";
      }
      text += "'";
    }
  }
  if (entry.takes_file) text += " \\\n        '1:job file:_files -g \"*.(toml|sh)\"'";
  if (!entry.choices.empty()) text += " \\\n        '1:value:(" + entry.choices + ")'";
  if (!entry.asks.empty()) text += " \\\n        '*:job:{_muster_ask " + entry.asks + "}'";
  return text;
}

std::string zsh_script(const std::vector<Entry>& entries) {
  std::string commands, words;
  for (const auto& entry : entries | std::views::drop(1)) {
    commands += "        '" + entry.name + ":" + zsh_quoted(entry.meaning) + "'\n";
    words += "        " + entry.name + ") _arguments" + zsh_options(entry) + " ;;\n";
  }
  return filled("muster.zsh",
                {{"@OPTIONS@", zsh_options(entries.front())}, {"@COMMANDS@", commands}, {"@WORDS@", words}});
}

std::string fish_quoted(const std::string& text) {
  std::string out;
  for (const char c : text) out += (c == '\'' || c == '\\') ? std::string("\\") + c : std::string(1, c);
  return "'" + out + "'";
}

std::string fish_script(const std::vector<Entry>& entries) {
  auto text = filled("muster.fish", {});
  // fish's __fish_use_subcommand would take the value of an option before the command for the command.
  const auto none = " -n 'not __fish_seen_subcommand_from " + commands_of(entries) + "'";
  for (const auto& entry : entries) {
    const std::string all = "complete -c muster";
    const auto inside = entry.name.empty() ? all : all + " -n '__fish_seen_subcommand_from " + entry.name + "'";
    if (!entry.name.empty()) text += all + none + " -a " + entry.name + " -d " + fish_quoted(entry.meaning) + "\n";
    if (entry.takes_file) text += inside + " -F\n";
    if (!entry.choices.empty()) text += inside + " -a " + fish_quoted(entry.choices) + "\n";
    if (!entry.asks.empty()) text += inside + " -k -a " + fish_quoted("(__muster_ask " + entry.asks + ")") + "\n";
    for (const auto& word : entry.options) {
      text += inside;
      for (const auto& name : word.names) {
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (word.takes_value) text += word.is_file ? " -r -F" : " -x";
      if (!word.choices.empty()) text += " -a " + fish_quoted(word.choices);
      if (!word.asks.empty()) text += " -a " + fish_quoted("(__muster_ask " + word.asks + ")");
      text += " -d " + fish_quoted(word.meaning) + "\n";
    }
  }
  return text;
}

struct CompletionOptions {
  std::string shell;
  const CLI::App* app = nullptr;
};

int run_completion(Session&, const CompletionOptions& options) {
  const auto entries = entries_of(*options.app);
  std::cout << (options.shell == "bash"  ? bash_script(entries)
                : options.shell == "zsh" ? zsh_script(entries)
                                         : fish_script(entries));
  return kSuccess;
}

struct WordsOptions {
  std::string what;
  std::string command;
};

/// Calls the controller. Throws a Failure after an error, and when kWordsWithin is over.
class Asker {
 public:
  explicit Asker(Session& session) : client_(session.client_unconnected()) {}

  template <typename Request, typename Response>
  Response ask(grpc::Status (JobStub::*method)(grpc::ClientContext*, const Request&, Response*),
               const Request& request) {
    const auto left = std::chrono::ceil<std::chrono::seconds>(until_ - Clock::now());
    if (left.count() <= 0) throw Failure(kUnreachable, "the time is over");
    return client_.call(method, request, left);
  }

 private:
  Client& client_;
  Clock::time_point until_ = Clock::now() + kWordsWithin;
};

/// Prints jobs of which the command may be asked. The controller looks for them, so old jobs are found too.
void print_jobs(Asker& asker, const std::string& command) {
  muster::v1::ListRequest request;
  if (command == "trace") request.add_states("running");
  // A job that may be cancelled has not ended, so a person may wait for it.
  request.set_may(command == "wait" ? "cancel" : command);
  request.set_limit(kWordsPage);
  std::size_t words = 0;
  for (int page = 0; page < kMostPages && words < kMostWords; ++page) {
    const auto answer = asker.ask(&JobStub::List, request);
    for (const auto& job : answer.jobs()) {
      std::cout << job.id() << "\t" << job.name() << ", " << status_of(job) << "\n";
      if (++words == kMostWords) return;
    }
    if (answer.jobs_size() < static_cast<int>(kWordsPage)) return;
    request.set_before_id(answer.jobs().rbegin()->id());
  }
}

/// The sweep's name: "gate" if its job is "gate-0007".
std::string name_of_sweep(const Job& job) {
  const auto number = job.name().rfind('-');
  return number == std::string::npos ? job.name() : job.name().substr(0, number);
}

/// Prints sweeps. The jobs of a sweep have consecutive ids, so the next page begins before the first job of the last
/// sweep.
void print_sweeps(Asker& asker) {
  std::set<std::string> sweeps;
  muster::v1::ListRequest request;
  request.set_limit(kWordsPage);
  for (int page = 0; page < kMostPages; ++page) {
    const auto answer = asker.ask(&JobStub::List, request);
    for (const auto& job : answer.jobs()) {
      const auto& sweep = job.sweep().sweep();
      if (sweep.empty() || !sweeps.insert(sweep).second) continue;
      muster::v1::ListRequest of_sweep;
      of_sweep.set_sweep(sweep);
      of_sweep.set_limit(1);
      const auto jobs = static_cast<std::size_t>(asker.ask(&JobStub::List, of_sweep).total());
      std::cout << sweep << "\t" << name_of_sweep(job) << ", " << core::count_text(jobs, "job") << "\n";
    }
    if (answer.jobs_size() < static_cast<int>(kWordsPage)) return;
    const auto& last = *answer.jobs().rbegin();
    const auto first = last.id() - static_cast<std::int64_t>(last.sweep().index());
    request.set_before_id(std::max<std::int64_t>(first, 1));
  }
}

/// Prints the series of recipes, then the series of the newest jobs that have run.
void print_series(Asker& asker) {
  std::set<std::string, std::less<>> names;
  const auto print = [&](const std::string& name, const std::string& unit) {
    if (names.insert(name).second) std::cout << name << (unit.empty() ? "" : "\t" + unit) << "\n";
  };
  for (const auto& recipe : spec::recipes()) {
    for (const auto& series : recipe.series) print(series.name, series.unit);
  }
  muster::v1::ListRequest request;
  request.set_limit(kSeriesOf);
  const auto newest = asker.ask(&JobStub::List, request);
  for (const auto& row : newest.jobs()) {
    if (row.attempts_size() == 0) continue;
    const auto job = asker.ask(&JobStub::Get, of_job(row.id()));
    for (const auto& series : job.series()) print(series.name(), series.unit());
  }
}

int run_words(Session& session, const WordsOptions& options) {
  Asker asker(session);
  try {
    if (options.what == "jobs") print_jobs(asker, options.command);
    if (options.what == "series") print_series(asker);
    if (options.what == "sweeps") print_sweeps(asker);
  } catch (const Failure&) {
    // The words that were found so far are printed.
  }
  return kSuccess;
}

}  // namespace

void define_completion(CLI::App& app, Session& session) {
  auto options = add_action<CompletionOptions>(app, session, run_completion);
  options->app = app.get_parent();
  app.add_option("shell", options->shell, "Which shell")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
}

void define_completion_words(CLI::App& app, Session& session) {
  auto options = add_action<WordsOptions>(app, session, run_words);
  app.add_option("what", options->what)->required()->check(CLI::IsMember({"jobs", "sweeps", "series"}));
  app.add_option("command", options->command);
}

}  // namespace cli
