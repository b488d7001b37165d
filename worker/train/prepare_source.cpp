#include "worker/train/prepare_source.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/checksum.h"
#include "base/durable_file.h"
#include "base/numbers.h"
#include "base/usage_error.h"
#include "data/format/dataset.h"
#include "data/format/tokenizer_files.h"

namespace worker {
namespace {

namespace fs = std::filesystem;

ModelTokenizer read_tokenizer(const std::string& key, const std::string& path, const fs::path& file) {
  try {
    const auto sha256 = base::sha256(base::read_whole_file(file, data::format::most_bytes_of(file)));
    return {path, data::format::is_sentencepiece(file) ? "sentencepiece" : "tokenizer.json", base::hex(sha256)};
  } catch (const std::runtime_error& error) {
    throw base::UsageError(key + " = \"" + path + "\": " + error.what());
  }
}

constexpr const char* kProgram = "muster-data";
constexpr int kNoSuchLibrary = 127;                                   // of a program whose libraries are not there
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

/// The last line of a text, without "muster data prepare: ".
std::string last_line(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  text = text.substr(text.rfind('\n') + 1);
  constexpr std::string_view kName = "muster data prepare: ";
  if (text.starts_with(kName)) text.remove_prefix(kName.size());
  return std::string(text);
}

/// Data that were made anew are worth a line in the rank's log.
void tell_what_was_mended(const std::string& err) {
  std::istringstream lines(err);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("made anew") != std::string::npos) std::fprintf(stderr, "warning: %s\n", line.c_str());
  }
}

/// Asks muster-data for the source, with these words besides, and returns the path that it prints.
fs::path ask(const DataConfig& data, const std::optional<ModelTokenizer>& tokenizer, base::CommandRunner& runner,
             const std::vector<std::string>& more) {
  const std::string place = source_text(data) + ": ";
  const fs::path program = base::find_program(kProgram);
  if (program.empty()) {
    throw base::UsageError(
        place +
        "there is no muster-data beside this program or in PATH, which reads sources; install it, or "
        "prepare the data elsewhere and name their folder in data.prepared");
  }
  base::Command command{.argv = {program.native(), "prepare"}, .time_limit = kLimit, .max_output_bytes = kMostOutput};
  auto& words = command.argv;
  for (const auto& word : source_words(data)) words.push_back(word);
  const std::string cache = cache_folder_of(data).native();
  words.insert(words.end(),
               {"--cache", cache, "--validation", "0", "--max-bytes", base::print_size_bytes(data.max_bytes)});
  if (tokenizer) words.insert(words.end(), {"--tokenizer", tokenizer->path});
  words.insert(words.end(), more.begin(), more.end());
  const auto result = runner.run(command);
  if (!result.could_not_start.empty()) throw std::runtime_error(place + result.could_not_start);
  if (result.exit_code == kWrong) throw base::UsageError(place + last_line(result.err));
  if (result.exit_code == kNoSuchLibrary) {
    throw base::UsageError(place + program.native() + " does not start: " + last_line(result.err) +
                           "; install what it needs on this machine");
  }
  if (result.signal != 0) {
    throw std::runtime_error(place + "a signal (" + std::to_string(result.signal) +
                             ") ended muster-data; its last words: " + last_line(result.err));
  }
  if (!result.succeeded()) {
    throw std::runtime_error(place + last_line(result.err) + "; look at data.cache_folder = \"" + cache +
                             "\", or name another one");
  }
  tell_what_was_mended(result.err);
  return last_line(result.out);
}

}  // namespace

std::optional<ModelTokenizer> tokenizer_of(const RunConfig& config) {
  const std::string& wanted = config.data_options.tokenizer;
  if (wanted == "bytes") return ModelTokenizer{wanted, wanted, base::hex(base::sha256(data::format::kBytesIdentity))};
  if (!wanted.empty()) {
    std::error_code ignored;
    const auto file =
        fs::is_regular_file(wanted, ignored) ? std::optional(fs::path(wanted)) : data::format::id_file_in(wanted);
    if (!file) {
      throw base::UsageError(
          "data.tokenizer = \"" + wanted +
          "\": there is no tokenizer.json, tokenizer.model or spiece.model; give such a file, its folder, "
          "or bytes");
    }
    return read_tokenizer("data.tokenizer", wanted, *file);
  }
  const std::string pretrained = config.values.text("model.pretrained");
  const auto file = pretrained.empty() ? std::nullopt : data::format::id_file_in(pretrained);
  return file ? std::optional(read_tokenizer("model.pretrained", pretrained, *file)) : std::nullopt;
}

std::string source_text(const DataConfig& data) {
  return "data.source = \"" + data.source + "\"" + (data.path.empty() ? "" : ", data.path = \"" + data.path + "\"");
}

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
                        base::CommandRunner& runner) {
  return ask(data, tokenizer, runner, {});
}

fs::path name_of_source(const DataConfig& data, const std::optional<ModelTokenizer>& tokenizer,
                        base::CommandRunner& runner) {
  return ask(data, tokenizer, runner, {"--name-only"});
}

std::optional<fs::path> find_prepared(const std::string& fingerprint, const fs::path& cache) {
  std::error_code error;
  for (fs::directory_iterator entry(cache, error), end; !error && entry != end; entry.increment(error)) {
    if (std::error_code none; !fs::exists(entry->path() / data::format::kDescriptionName, none)) continue;
    try {
      const auto description = data::format::read_description(entry->path());
      if (description.fingerprint != fingerprint) continue;
      for (const auto& [split, info] : description.splits)
        data::format::Dataset::open(entry->path(), split).verify(0, 1);
      return entry->path();
    } catch (const std::system_error& refused) {
      if (refused.code() != std::errc::permission_denied) throw;  // another user's data are not meant
    } catch (const std::runtime_error& damage) {
      std::fprintf(stderr, "warning: %s; these data are passed over\n", damage.what());
    }
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw std::system_error(error, "cannot list " + cache.native());
  }
  return std::nullopt;
}

}  // namespace worker
