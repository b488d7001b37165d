#include "agent/watch/last_words.h"

#include <signal.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <map>
#include <optional>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "agent/protocol/files.h"
#include "agent/watch/folder_walk.h"
#include "agent/watch/log_lines.h"
#include "base/words.h"

namespace agent::watch {
namespace {

namespace fs = std::filesystem;
using namespace log;

/// core::is_surely_an_error() knows them, too.
constexpr std::string_view kLastLine = "last line: ", kLogged = "logged: ";
/// Lines that may follow an error that a log closes with, such as a warning of a library that is torn down.
constexpr std::size_t kAfterError = 3;

/// "0.31", and "nan": what follows the name of a quantity.
bool begins_with_number(std::string_view text) {
  const auto word = trimmed(text).substr(0, trimmed(text).find_first_of(" ,;"));
  return begins_with_digits(text) || word == "nan" || word == "-nan" || word == "inf" || word == "-inf";
}

enum class Level { kNone, kHarmless, kError };

/// The level that the word of a logger tells: "[info]", "WARNING:root:x", and of glog "W1123".
Level level_of(std::string_view word) {
  const bool glog = word.size() == 5 && std::ranges::all_of(word.substr(1), is_digit);
  if (glog) {
    if (word[0] == 'I' || word[0] == 'W') return Level::kHarmless;
    return word[0] == 'E' || word[0] == 'F' ? Level::kError : Level::kNone;
  }
  for (const std::string_view name : {"INFO", "DEBUG", "TRACE", "NOTICE", "WARNING", "WARN"}) {
    if (equal_in_any_case(word, name)) return Level::kHarmless;
  }
  return word == "ERROR" || word == "CRITICAL" || word == "FATAL" ? Level::kError : Level::kNone;
}

/// The level that a logger puts among the first words of its line: "2026-11-23 10:00:00,123 - root - ERROR - x".
/// "ERROR: x" is what tools print.
Level level_of_line(std::string_view line) {
  constexpr int kFirstWords = 12;
  constexpr std::string_view kBetween = " \t[](){}:|-,";
  for (int i = 0; i < kFirstWords; ++i) {
    const auto begin = line.find_first_not_of(kBetween);
    if (begin == std::string_view::npos) break;
    line.remove_prefix(begin);
    const auto word = line.substr(0, line.find_first_of(kBetween));
    const auto level = level_of(word);
    line.remove_prefix(word.size());
    // A lower-case word is a level only where it is set apart: "[info]", "info: x".
    const bool apart = line.starts_with(']') || line.starts_with(':') || line.starts_with('|');
    const bool shouted = std::ranges::none_of(word, [](unsigned char c) { return std::islower(c) != 0; });
    const bool tool = level == Level::kError && i == 0 && line.starts_with(": ");
    if (level != Level::kNone && (apart || shouted) && !tool) return level;
  }
  return Level::kNone;
}

/// The text after "train.py: " or "run.sh: line 3: "; the whole line where a program's name does not begin it.
std::string_view without_program(std::string_view line) {
  const auto colon = line.substr(0, line.find(' ')).size();
  if (colon == line.size() || colon < 2 || line[colon - 1] != ':') return line;
  const auto name = line.substr(0, colon - 1);
  if (equal_in_any_case(name, "error") || name == "fatal") return line;
  auto rest = trimmed(line.substr(colon));
  const auto number = rest.starts_with("line ") ? rest.substr(5) : rest;
  const auto digits = number.find_first_not_of("0123456789");
  if (digits != 0 && digits != std::string_view::npos && number.substr(digits).starts_with(": ")) {
    rest = trimmed(number.substr(digits + 1));
  }
  return rest;
}

/// True if a shell or a tool tells of an error: at the start of the line, or after its name.
bool tool_says_error(std::string_view line) {
  const auto said = without_program(line);
  for (const std::string_view start : {"error:", "fatal:", "fatal error:"}) {
    if (find_in_any_case(said, start) != 0) continue;
    const auto rest = said.substr(start.size());
    return (rest.empty() || rest.front() == ' ') && !begins_with_number(rest);
  }
  for (const std::string_view start : {"Killed", "Aborted", "Segmentation fault", "Bus error", "Illegal instruction"}) {
    if (said == start || said == std::string(start) + " (core dumped)") return true;
  }
  if (said.size() == line.size()) return false;  // it names no program
  for (const std::string_view end : {"command not found", "no such file or directory", "permission denied",
                                     "unbound variable", ": not found", "is a directory", "not a directory"}) {
    if (line.size() >= end.size() && equal_in_any_case(line.substr(line.size() - end.size()), end)) return true;
  }
  // "run.sh: line 2:  4242 Killed                  python3 train.py"
  const auto pid = said.find_first_not_of("0123456789");
  return pid != 0 && pid != std::string_view::npos && trimmed(said.substr(pid)).starts_with("Killed ");
}

/// Words that are an error's more often than not.
bool may_say_error(std::string_view line) {
  for (const std::string_view part : {"segmentation fault", "core dumped", "out of memory", "oom-kill",
                                      "no such file or directory", "permission denied", "command not found"}) {
    if (contains_in_any_case(line, part)) return true;
  }
  const auto colon = line.find(':');
  const bool quantity = colon != std::string_view::npos && begins_with_number(line.substr(colon + 1));
  return (line.starts_with("Error ") && !quantity) || line.starts_with("cannot ");
}

/// True if a number stands in the line by itself: "step 40 loss 2.1", "7/100", "12%". Programs tell their progress so.
bool has_number(std::string_view line) {
  while (!line.empty()) {
    const auto word = line.substr(0, line.find_first_of(" \t=:,;()[]|"));
    const bool digit = std::ranges::any_of(word, is_digit);
    const bool letters = std::ranges::count_if(word, [](unsigned char c) { return std::isalpha(c) != 0; }) > 1;
    if (digit && !letters) return true;
    line.remove_prefix(std::min(line.size(), word.size() + 1));
  }
  return false;
}

/// Fit to be shown as the last thing that a program said before it failed: words, and nobody's frame of a traceback.
bool is_sentence(std::string_view line) {
  const bool indented = line.starts_with(' ') || line.starts_with('\t');
  const auto letters = std::ranges::count_if(line, [](unsigned char c) { return std::isalpha(c) != 0 || c >= 0x80; });
  return !indented && letters >= 3 && !has_number(line) && !line.starts_with("Traceback (most recent call last)");
}

/// muster-worker's own: "error: <words> (exit code 1)".
std::string without_frame(std::string_view line) {
  constexpr std::string_view kError = "error: ";
  if (line.size() > kError.size() && equal_in_any_case(line.substr(0, kError.size()), kError)) {
    line.remove_prefix(kError.size());
    const auto code = line.rfind(" (exit code ");
    if (code != std::string_view::npos && line.ends_with(')')) line = line.substr(0, code);
  }
  return std::string(line);
}

/// An error that looks like nobody's last words, but that a tool, a shell or a logger may say. The program ended with
/// this error only where nothing comes after it.
std::string said_error(const Lines& lines) {
  std::string sentence;
  const auto end = lines.size() - std::min(lines.size(), kAtEnd);
  for (auto i = lines.size(); i-- > end;) {
    const auto line = trimmed(lines[i].text);
    const auto level = level_of_line(line);
    if (level == Level::kHarmless || contains_in_any_case(line, "warning") || contains(line, "Exception ignored in")) {
      continue;
    }
    const bool last = i + 1 == lines.size();
    const bool tool = tool_says_error(line);
    if (tool && last && level == Level::kNone) return without_frame(line);
    if (tool || level == Level::kError || may_say_error(line)) {
      return std::string(last ? kLastLine : kLogged) + without_frame(line);
    }
    if (last && is_sentence(lines[i].text)) sentence = std::string(kLastLine) + std::string(line);
  }
  return sentence;
}

/// The lines of one rank, in the order of the log. Ranks that write into one log write between each other's lines.
struct Stream {
  Lines lines;
  std::vector<std::size_t> places;  // of the lines in the log
};

/// The error that the lines of one rank close with.
struct LastError {
  std::string words;
  std::size_t place = 0;   // of its first line in the log
  std::size_t behind = 0;  // lines of the rank that come after it
  bool of_child = false;
};

std::map<int, Stream> by_rank(const Lines& lines) {
  std::map<int, Stream> streams;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    auto& stream = streams[lines[i].rank];
    stream.lines.push_back(lines[i]);
    stream.places.push_back(i);
  }
  return streams;
}

/// A program's own error counts before a launcher's words. Of several the last one counts: a program may print an error
/// and go on. But an error that says that somebody else has gone gives way to another one shortly before it: those are
/// of two ranks, or one rank says both.
std::optional<LastError> last_error(const Stream& stream) {
  std::optional<LastError> own, of_child;
  for (std::size_t i = 0; i < stream.lines.size(); ++i) {
    const auto found = error_at(stream.lines, i);
    if (!found) continue;
    const bool follows = own && i <= stream.lines.size() - own->behind + kAtEnd;
    const bool gives_way = !found->of_child && follows && protocol::is_of_a_survivor(found->words) &&
                           !protocol::is_of_a_survivor(own->words);
    const auto behind = stream.lines.size() - found->last - 1;
    if (gives_way) {
      own->behind = behind;
    } else {
      (found->of_child ? of_child : own) = LastError{found->words, stream.places[i], behind, found->of_child};
    }
    i = found->last;
  }
  return own ? own : of_child;
}

std::map<int, LastError> last_errors(const Lines& lines) {
  std::map<int, LastError> errors;
  for (const auto& [rank, stream] : by_rank(lines)) {
    if (auto error = last_error(stream)) errors.emplace(rank, std::move(*error));
  }
  return errors;
}

/// The first of the errors of several ranks that no other rank's end explains.
const LastError* first_cause(const std::map<int, LastError>& errors) {
  const LastError* best = nullptr;
  // Worse: of a launcher, followed by much else, of a survivor; then a later place.
  const auto rate = [](const LastError& error) {
    return std::tuple(error.of_child, error.behind > kAtEnd, protocol::is_of_a_survivor(error.words), error.place);
  };
  for (const auto& [rank, error] : errors) {
    if (best == nullptr || rate(error) < rate(*best)) best = &error;
  }
  return best;
}

/// The worker's own words in the log, or in its error file; empty: none, or that another one has gone.
std::string own_words(const WorkerFailure& worker, const std::map<int, LastError>& errors) {
  for (const int rank : {worker.rank, worker.local_rank}) {
    const auto own = errors.find(rank);
    if (rank != log::kNoRank && own != errors.end() && !protocol::is_of_a_survivor(own->second.words)) {
      return own->second.words;
    }
  }
  return protocol::is_of_a_survivor(worker.error) ? std::string() : worker.error;
}

/// The error that the launcher's word on the first failure leads to; empty: it says no more than the lines do.
std::string words_of(const RootCause& cause, const std::map<int, LastError>& errors) {
  if (auto words = own_words(cause, errors); !words.empty()) return words;
  if (cause.was_killed) return cause.end;  // what others said follows from it
  const auto* const first = first_cause(errors);
  if (first != nullptr && !first->of_child && !protocol::is_of_a_survivor(first->words)) return {};
  // torchelastic compares seconds, so a survivor may have been called the first.
  for (const auto& other : cause.others) {
    if (other.had_signal) return other.end;
    if (auto words = own_words(other, errors); !words.empty()) return words;
  }
  return cause.error.empty() ? cause.end : cause.error;
}

/// Up to the first line break; with the next line where this one ends in a colon.
std::string first_line(std::string_view text) {
  Lines lines;
  while (!text.empty() && lines.size() < 2) {
    const auto end = text.find('\n');
    const auto line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!trimmed(line).empty()) lines.push_back({std::string(line)});
  }
  return lines.empty() ? std::string() : with_next(lines, 0);
}

}  // namespace

std::string error_line(std::string_view text) {
  const auto lines = log::last_lines(text, kNearEnd);
  const auto errors = last_errors(lines);
  if (const auto cause = root_cause(lines)) {
    if (auto words = words_of(*cause, errors); !words.empty()) return words;
  }
  const auto* const first = first_cause(errors);
  return first == nullptr ? said_error(lines) : first->words;
}

std::string closing_error(std::string_view text) {
  const auto lines = log::last_lines(text, kNearEnd);
  if (const auto cause = root_cause(lines)) return words_of(*cause, last_errors(lines));
  const auto errors = last_errors(lines);
  const auto* const first = first_cause(errors);
  return first == nullptr || first->behind > kAfterError ? std::string() : first->words;
}

namespace {

constexpr const char* kErrorName = "error.json";
constexpr std::size_t kMostErrorFile = 1 << 20;
constexpr int kMostWorkers = 256;

/// The folder that holds one folder for each worker of the launcher on this node.
std::optional<fs::path> workers_folder(const RootCause& cause) {
  const auto folder = [](const WorkerFailure& worker) -> std::optional<fs::path> {
    const fs::path file(worker.error_file);
    if (file.filename() != kErrorName) return std::nullopt;
    return file.parent_path().parent_path();
  };
  if (const auto own = folder(cause)) return own;
  for (const auto& other : cause.others) {
    if (const auto one = folder(other)) return one;
  }
  return std::nullopt;
}

/// Seconds since 1970, as the worker wrote them; 0: not told.
std::int64_t time_in(const nlohmann::json& json) {
  const auto read = [](const nlohmann::json& value) -> std::int64_t {
    if (value.is_number_integer()) return value.get<std::int64_t>();
    return value.is_string() ? std::strtoll(value.get_ref<const std::string&>().c_str(), nullptr, 10) : 0;
  };
  if (json.contains("timestamp")) return read(json["timestamp"]);
  const auto message = json.find("message");
  if (message == json.end() || !message->is_object() || !message->contains("extraInfo")) return 0;
  const auto& extra = (*message)["extraInfo"];
  return extra.is_object() && extra.contains("timestamp") ? read(extra["timestamp"]) : 0;
}

/// The earliest error that a worker of a launcher wrote into its error file, and that no other worker's end explains:
/// the message, fit for a sentence. Empty: there is none.
///
/// `log` is the end of the launcher's log. torchelastic's last block there names the error files of the workers that it
/// saw fail. Those of the others lie beside them (`attempt_0/<local rank>/error.json`): a worker may have written its
/// error and still have been alive when a survivor of it failed. Where the block says that SIGKILL was first, nothing
/// is looked for. Reads regular files alone, kMostWorkers of them at most.
std::string words_of_workers(std::string_view log) {
  const auto cause = root_cause(log::last_lines(log, kNearEnd));
  if (!cause || cause->was_killed) return {};
  const auto folder = workers_folder(*cause);
  if (!folder) return {};
  std::map<std::pair<std::int64_t, std::string>, std::string> errors;  // by time, then by the name of the folder
  std::error_code error;
  int left = kMostWorkers;
  for (fs::directory_iterator entry(*folder, error), end; !error && entry != end && left-- > 0;
       entry.increment(error)) {
    const auto text = read_part(entry->path() / kErrorName, 0, kMostErrorFile).bytes;
    auto words = words_of_error_file(text);
    if (words.empty() || protocol::is_of_a_survivor(words)) continue;
    const auto json = nlohmann::json::parse(text, nullptr, false);
    errors.emplace(std::pair(time_in(json), entry->path().filename().string()), std::move(words));
  }
  return errors.empty() ? std::string() : errors.begin()->second;
}

/// At most `most` bytes from the end of a regular file; empty: there is none.
std::string read_end(const fs::path& file, std::size_t most) {
  const auto size = read_part(file, 0, 0).size;
  return read_part(file, size - std::min<std::uint64_t>(size, most), most).bytes;
}

/// True if the words tell why, and not only that a launcher's worker exited or that another one has gone.
bool tell_why(const std::string& words) {
  return !words.empty() && !protocol::is_of_a_survivor(words) && words.find(kWorkerExited) == std::string::npos;
}

/// The words that `find` reads in the end of the log, unless the error file or a launcher's worker tells more. A
/// launcher's error file may tell of a worker that only lost its connection.
std::string first_words(const RankFiles& files, std::string (*find)(std::string_view log),
                        std::string (*find_after_file)(std::string_view log)) {
  auto words = words_of_error_file(read_end(files.error, kMostErrorFile));
  if (tell_why(words)) return words;
  const auto log = read_end(files.log, kMostRead);
  auto of_log = fit_for_a_sentence((words.empty() ? find : find_after_file)(log));
  if (tell_why(of_log)) return of_log;
  if (auto of_workers = words_of_workers(log); !of_workers.empty()) return of_workers;
  return of_log.empty() ? words : of_log;
}

}  // namespace

bool may_have_words(const spec::ExitStatus& end) {
  constexpr std::array kOwnFault{SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
  if (end.signal != 0) return std::ranges::find(kOwnFault, end.signal) != kOwnFault.end();
  return end.code != 0 && end.code != spec::kExitRequeue && end.code != spec::kExitFenced;
}

bool may_have_failed(const spec::ExitStatus& end) {
  return end.signal == SIGTERM || end.signal == SIGKILL || may_have_words(end);
}

std::string fit_for_a_sentence(std::string_view text) {
  std::string words;
  while (!text.empty()) {
    const auto size = base::character_bytes(text);
    const auto first = static_cast<unsigned char>(text.front());
    const bool blank = first <= 0x20 || first == 0x7F;
    if (blank) {
      if (!words.empty() && words.back() != ' ') words += ' ';
    } else {
      words += size == 0 ? "?" : text.substr(0, size);
    }
    text.remove_prefix(std::max<std::size_t>(size, 1));
  }
  while (!words.empty() && words.back() == ' ') words.pop_back();
  if (words.size() <= kMostWords) return words;
  std::size_t end = kMostWords - 3;  // room for "..."
  while (end > 0 && (static_cast<unsigned char>(words[end]) & 0xC0) == 0x80) --end;
  return words.substr(0, end) + "...";
}

std::string words_of_error_file(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return {};
  auto message = json.find("message");
  if (message == json.end()) return {};
  if (message->is_object() && message->contains("message")) message = message->find("message");
  return message->is_string() ? fit_for_a_sentence(first_line(message->get_ref<const std::string&>())) : std::string();
}

std::string read_own_failure(const RankFiles& files) {
  auto words = first_words(files, closing_error, closing_error);
  return protocol::is_of_a_survivor(words) ? std::string() : words;
}

std::string read_last_words(const RankFiles& files) {
  return first_words(files, error_line, closing_error);
}

}  // namespace agent::watch
