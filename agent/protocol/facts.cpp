#include "agent/protocol/facts.h"

#include <nlohmann/json.hpp>

#include <stdexcept>

namespace agent::protocol {
namespace {

using nlohmann::json;

constexpr std::string_view kStatusStart = "status", kStatusEnd = ".jsonl";

json to_json(const Started& f) {
  json ranks = json::array();
  for (const auto& rank : f.ranks) ranks.push_back({{"pid", rank.pid}, {"start_time", rank.start_time}});
  return {{"fact", "started"}, {"boot_id", f.boot_id}, {"node", f.node}, {"session", f.session}, {"ranks", ranks}};
}
json to_json(const Running&) {
  return {{"fact", "running"}};
}
json to_json(const LaunchFailed& f) {
  return {{"fact", "launch_failed"}, {"reason", f.reason}, {"retryable", f.retryable}, {"node", f.node}};
}
json to_json(const Exited& f) {
  json object{{"fact", "exited"},
              {"rank", f.rank},
              {"code", f.exit.code},
              {"signal", f.exit.signal},
              {"out_of_memory", f.out_of_memory},
              {"at_ms", f.at_ms},
              {"error", f.error}};
  if (!f.signals_seen.empty()) object["signals_seen"] = f.signals_seen;
  if (f.step_lost) object["step_lost"] = true;
  return object;
}
json to_json(const Ended&) {
  return {{"fact", "ended"}};
}

Started started_from(const json& object) {
  Started f{object.at("boot_id"), object.at("node"), object.at("session"), {}};
  for (const auto& rank : object.at("ranks")) f.ranks.push_back({rank.at("pid"), rank.at("start_time")});
  return f;
}

std::optional<Fact> fact_from(const json& object) {
  const auto kind = object.at("fact").get<std::string>();
  if (kind == "started") return started_from(object);
  if (kind == "running") return Running{};
  if (kind == "launch_failed")
    return LaunchFailed{object.at("reason"), object.at("retryable"), object.value("node", "")};
  if (kind == "exited") {
    return Exited{object.at("rank"),
                  {object.at("code"), object.at("signal")},
                  object.at("out_of_memory"),
                  object.at("at_ms"),
                  object.value("error", ""),
                  object.value("signals_seen", std::vector<int>{}),
                  object.value("step_lost", false)};
  }
  if (kind == "ended") return Ended{};
  return std::nullopt;
}

}  // namespace

std::string status_file(std::uint32_t first_rank) {
  const auto number = first_rank == 0 ? std::string() : "-" + std::to_string(first_rank);
  return std::string(kStatusStart) + number + std::string(kStatusEnd);
}

bool is_status_file(std::string_view name) {
  return name.starts_with(kStatusStart) && name.ends_with(kStatusEnd);
}

std::string to_line(const Fact& fact) {
  const auto object = std::visit([](const auto& f) { return to_json(f); }, fact);
  return object.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::optional<Fact> parse_fact(std::string_view line) {
  try {
    return fact_from(json::parse(line));
  } catch (const json::exception& error) {
    throw std::runtime_error(std::string("a status file holds a line that makes no sense: ") + error.what());
  }
}

void fold(Status& status, const Fact& fact) {
  if (const auto* started = std::get_if<Started>(&fact)) status.started = *started;
  if (std::holds_alternative<Running>(fact)) status.running = true;
  if (const auto* failed = std::get_if<LaunchFailed>(&fact)) status.failed = *failed;
  if (const auto* exited = std::get_if<Exited>(&fact)) {
    if (status.exits.emplace(exited->rank, *exited).second) status.ends.push_back(exited->rank);
  }
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
