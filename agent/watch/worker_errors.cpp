#include "agent/watch/worker_errors.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "agent/protocol/survivors.h"
#include "agent/watch/error_line.h"
#include "agent/watch/last_words.h"
#include "agent/watch/log_lines.h"
#include "agent/watch/regular_file.h"
#include "agent/watch/root_cause.h"

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

}  // namespace agent::watch
