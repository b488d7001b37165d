#include "agent/watch/last_words.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "agent/protocol/files.h"
#include "agent/watch/error_line.h"
#include "agent/watch/folder_walk.h"
#include "agent/watch/log_lines.h"
#include "agent/watch/root_cause.h"
#include "base/words.h"

namespace agent::watch {
namespace {

namespace fs = std::filesystem;

constexpr const char* kErrorName = "error.json";
constexpr std::size_t kMostBytes = 1 << 20;

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

}  // namespace

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
    const auto text = read_part(entry->path() / kErrorName, 0, kMostBytes).bytes;
    auto words = words_of_error_file(text);
    if (words.empty() || protocol::is_of_a_survivor(words)) continue;
    const auto json = nlohmann::json::parse(text, nullptr, false);
    errors.emplace(std::pair(time_in(json), entry->path().filename().string()), std::move(words));
  }
  return errors.empty() ? std::string() : errors.begin()->second;
}

namespace {

constexpr std::size_t kMostErrorFile = 1 << 20;

/// At most `most` bytes from the end of a regular file; empty: there is none.
std::string read_end(const std::filesystem::path& file, std::size_t most) {
  // A pipe of that name would be waited for.
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return {};
  struct Close {
    int fd;
    ~Close() { ::close(fd); }
  } const close{fd};
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return {};
  const auto size = static_cast<std::size_t>(status.st_size);
  std::string text(std::min(size, most), '\0');
  std::size_t done = 0;
  for (auto at = static_cast<off_t>(size - text.size()); done < text.size();) {
    const auto count = ::pread(fd, text.data() + done, text.size() - done, at + static_cast<off_t>(done));
    if (count == 0 || (count < 0 && errno != EINTR)) break;
    if (count > 0) done += static_cast<std::size_t>(count);
  }
  text.resize(done);
  return text;
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
