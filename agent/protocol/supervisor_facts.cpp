#include "agent/protocol/supervisor_facts.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace agent::protocol {
namespace {

using nlohmann::json;

json to_json(const Started& f) {
  json ranks = json::array();
  for (const auto& rank : f.ranks) ranks.push_back({{"pid", rank.pid}, {"start_time", rank.start_time}});
  return {{"fact", "started"}, {"boot_id", f.boot_id}, {"node", f.node}, {"session", f.session}, {"ranks", ranks}};
}
json to_json(const Running&) {
  return {{"fact", "running"}};
}
json to_json(const LaunchFailed& f) {
  return {{"fact", "launch_failed"}, {"reason", f.reason}, {"retryable", f.retryable}};
}
json to_json(const Exited& f) {
  return {{"fact", "exited"},
          {"rank", f.rank},
          {"code", f.exit.code},
          {"signal", f.exit.signal},
          {"out_of_memory", f.out_of_memory},
          {"at_ms", f.at_ms},
          {"error", f.error}};
}
json to_json(const Ended&) {
  return {{"fact", "ended"}};
}
json to_json(const Used& f) {
  json ranks = json::array();
  for (const auto& [rank, use] : f.ranks) {
    json one{{"rank", rank},
             {"at_ms", use.at_ms},
             {"memory_bytes", use.memory_bytes},
             {"memory_peak_bytes", use.memory_peak_bytes},
             {"processes", use.processes}};
    if (use.cores) one["cores"] = *use.cores;
    if (use.gpu_percent) one["gpu_percent"] = *use.gpu_percent;
    if (use.gpu_memory_bytes) one["gpu_memory_bytes"] = *use.gpu_memory_bytes;
    ranks.push_back(std::move(one));
  }
  return {{"fact", "used"}, {"ranks", ranks}};
}

Started started_from(const json& object) {
  Started f{object.at("boot_id"), object.at("node"), object.at("session"), {}};
  for (const auto& rank : object.at("ranks")) f.ranks.push_back({rank.at("pid"), rank.at("start_time")});
  return f;
}

template <typename Number>
std::optional<Number> number_at(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? std::nullopt : std::optional(found->get<Number>());
}

Used used_from(const json& object) {
  Used f;
  for (const auto& one : object.at("ranks")) {
    f.ranks.emplace(one.at("rank"), RankUse{.at_ms = one.at("at_ms"),
                                            .cores = number_at<double>(one, "cores"),
                                            .memory_bytes = one.at("memory_bytes"),
                                            .memory_peak_bytes = one.at("memory_peak_bytes"),
                                            .processes = one.at("processes"),
                                            .gpu_percent = number_at<double>(one, "gpu_percent"),
                                            .gpu_memory_bytes = number_at<std::int64_t>(one, "gpu_memory_bytes")});
  }
  return f;
}

std::optional<Fact> fact_from(const json& object) {
  const auto kind = object.at("fact").get<std::string>();
  if (kind == "started") return started_from(object);
  if (kind == "running") return Running{};
  if (kind == "launch_failed") return LaunchFailed{object.at("reason"), object.at("retryable")};
  if (kind == "exited") {
    return Exited{object.at("rank"),
                  {object.at("code"), object.at("signal")},
                  object.at("out_of_memory"),
                  object.at("at_ms"),
                  object.value("error", "")};
  }
  if (kind == "ended") return Ended{};
  if (kind == "used") return used_from(object);
  return std::nullopt;
}

}  // namespace

std::string to_line(const Fact& fact) {
  const auto object = std::visit([](const auto& f) { return to_json(f); }, fact);
  return object.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::optional<Fact> parse_fact(std::string_view line) {
  try {
    return fact_from(json::parse(line));
  } catch (const json::exception& error) {
    throw std::runtime_error(std::string(kStatusFile) + " holds a line that makes no sense: " + error.what());
  }
}

void fold(Status& status, const Fact& fact) {
  if (const auto* started = std::get_if<Started>(&fact)) status.started = *started;
  if (std::holds_alternative<Running>(fact)) status.running = true;
  if (const auto* failed = std::get_if<LaunchFailed>(&fact)) status.failed = *failed;
  if (const auto* exited = std::get_if<Exited>(&fact)) status.exits.emplace(exited->rank, *exited);
  if (std::holds_alternative<Ended>(fact)) status.ended = true;
}

Status parse_status(std::string_view text) {
  Status status;
  for (std::size_t begin = 0;;) {
    const auto end = text.find('\n', begin);
    if (end == std::string_view::npos) return status;
    if (const auto fact = parse_fact(text.substr(begin, end - begin))) fold(status, *fact);
    begin = end + 1;
  }
}

}  // namespace agent::protocol
