#include "train/prepare_source.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "prepared/description.h"
#include "prepared/reader.h"
#include "rank/errors.h"
#include "schema/units.h"

namespace worker {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProgram = "muster-data";
constexpr int kSignalled = 128;                                       // its exit code, less the signal's number
constexpr int kWrong = 2;                                             // its exit code for a wrong source
constexpr std::chrono::milliseconds kLimit = std::chrono::hours(24);  // the controller's limits are shorter
constexpr std::size_t kMostOutput = 1 << 20;

/// The words that ask for a source.
std::vector<std::string> source_words(const DataConfig& data) {
  std::vector<std::string> words{"--from", data.source == "folder" ? "text" : data.source};
  if (data.source == "folder") words.push_back(data.path);
  if (data.source == "man" || data.source == "auto") words.push_back(data.man_folder);
  return words;
}

/// What the job file says, for messages.
std::string asked(const DataConfig& data) {
  return "data.source = \"" + data.source + "\"" + (data.path.empty() ? "" : ", data.path = \"" + data.path + "\"");
}

/// Whether a signal that asks to leave has ended the program. Slurm sends it to all processes of a rank, and the rank
/// itself decides when to leave.
bool was_asked_to_leave(const os::CommandResult& result) {
  const int signal = result.signal != 0 ? result.signal : result.exit_code - kSignalled;
  return signal == SIGTERM || signal == SIGINT || signal == SIGUSR1 || signal == SIGUSR2;
}

/// The last line of a text, without "muster data prepare: ".
std::string last_line(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  text = text.substr(text.rfind('\n') + 1);
  constexpr std::string_view kName = "muster data prepare: ";
  if (text.starts_with(kName)) text.remove_prefix(kName.size());
  return std::string(text);
}

}  // namespace

fs::path cache_folder_of(const DataConfig& data) {
  if (!data.cache_folder.empty()) return data.cache_folder;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') {
    return fs::path(cache) / "muster";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') {
    return fs::path(home) / ".cache/muster";
  }
  return fs::temp_directory_path() / ("muster-" + std::to_string(::getuid()));
}

fs::path prepare_source(const DataConfig& data, const std::optional<ModelTokenizer>& tokenizer,
                        os::CommandRunner& runner) {
  const fs::path program = os::find_program(kProgram);
  if (program.empty()) {
    throw UsageError(asked(data) +
                     ": there is no muster-data beside this program or in PATH, which reads sources; "
                     "install it, or prepare the data elsewhere and name their folder in data.prepared");
  }
  os::Command command{.argv = {program.native(), "prepare"}, .time_limit = kLimit, .max_output_bytes = kMostOutput};
  for (const auto& word : source_words(data)) command.argv.push_back(word);
  const std::string cache = cache_folder_of(data).native();
  for (const auto& word : {std::string("--cache"), cache, std::string("--validation"), std::string("0"),
                           std::string("--max-bytes"), schema::print_size_bytes(data.max_bytes)}) {
    command.argv.push_back(word);
  }
  if (tokenizer) command.argv.insert(command.argv.end(), {"--tokenizer", tokenizer->path});
  auto result = runner.run(command);
  if (was_asked_to_leave(result)) result = runner.run(command);  // it goes on from where it was stopped
  if (!result.could_not_start.empty()) throw std::runtime_error(asked(data) + ": " + result.could_not_start);
  if (result.exit_code == kWrong) throw UsageError(asked(data) + ": " + last_line(result.err));
  if (!result.succeeded()) {
    const std::string how =
        result.signal != 0 ? "a signal (" + std::to_string(result.signal) + ") ended muster-data: " : "muster-data: ";
    throw std::runtime_error(asked(data) + ": " + how + last_line(result.err) + "; data.cache_folder = \"" + cache +
                             "\"");
  }
  return last_line(result.out);
}

std::optional<fs::path> find_prepared(const std::string& fingerprint, const fs::path& cache) {
  std::error_code error;
  for (fs::directory_iterator entry(cache, error), end; !error && entry != end; entry.increment(error)) {
    if (!fs::exists(entry->path() / prepared::kDescriptionName, error)) continue;
    try {
      const auto description = prepared::read_description(entry->path());
      if (description.fingerprint != fingerprint) continue;
      for (const auto& [split, info] : description.splits) prepared::Dataset::open(entry->path(), split).verify(0, 1);
      return entry->path();
    } catch (const std::runtime_error& damage) {
      std::fprintf(stderr, "warning: %s; these data are passed over\n", damage.what());
    }
  }
  return std::nullopt;
}

}  // namespace worker
