#include "fsdp/comm/watch/judge.h"

#include <algorithm>
#include <cstdio>

namespace fsdp::watch {
namespace {

constexpr std::size_t kNamed = 8;  // ranks that a text names

std::string call_text(const std::string& group, const Call& call) {
  return "call " + std::to_string(call.number) + " of " + group + ", " + call.text();
}

std::string time_text(std::chrono::milliseconds time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(time.count()) / 1e3);
  return text;
}

const Call* find_call(const Answer& answer, std::uint64_t number) {
  const auto found = std::ranges::find(answer.calls, number, &Call::number);
  return found == answer.calls.end() ? nullptr : &*found;
}

/// The ranks that made each call under this number, the most common call first.
struct Party {
  Call call;
  std::vector<int> ranks;
};
std::vector<Party> parties_of(std::uint64_t number, const std::map<int, Answer>& answers) {
  std::vector<Party> parties;
  for (const auto& [rank, answer] : answers) {
    const Call* call = find_call(answer, number);
    if (call == nullptr) continue;
    const auto known = std::ranges::find_if(parties, [&](const Party& p) { return p.call.digest == call->digest; });
    if (known == parties.end()) {
      parties.push_back({*call, {rank}});
    } else {
      known->ranks.push_back(rank);
    }
  }
  std::ranges::stable_sort(parties, [](const Party& a, const Party& b) { return a.ranks.size() > b.ranks.size(); });
  return parties;
}

std::string difference_in(const std::string& group, const std::map<int, Answer>& answers) {
  std::set<std::uint64_t> numbers;
  for (const auto& [rank, answer] : answers)
    for (const Call& call : answer.calls) numbers.insert(call.number);
  for (const std::uint64_t number : numbers) {
    const auto parties = parties_of(number, answers);
    if (parties.size() < 2) continue;
    std::string text = "the ranks differ in call " + std::to_string(number) + " of " + group;
    for (const Party& party : parties)
      text += (&party == &parties.front() ? ": " : "; ") + names_of(party.ranks) +
              (party.ranks.size() == 1 ? " calls " : " call ") + party.call.text();
    return text;
  }
  return {};
}

std::string late_text(int rank, const Answer& answer) {
  std::string text = "rank " + std::to_string(rank) + " has not come for " + time_text(answer.unchanged);
  text += answer.calls.empty() ? " (it has made no call here" : " (its last one is " + answer.calls.back().text();
  return text + (answer.elsewhere.empty() ? "" : "; it stands in " + answer.elsewhere) + ")";
}

}  // namespace

std::string names_of(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(ranks.size(), kNamed); ++i) {
    const bool last = i + 1 == ranks.size();
    text += (i == 0 ? "" : last ? " and " : ", ") + std::to_string(ranks[i]);
  }
  if (ranks.size() > kNamed) text += " and " + std::to_string(ranks.size() - kNamed) + " more";
  return text;
}

Json Answer::json() const {
  Json out{Json::Object{}};
  out["belongs"] = belongs;
  if (waits_in) out["waits_in"] = *waits_in;
  out["unchanged_ms"] = static_cast<std::int64_t>(unchanged.count());
  out["elsewhere"] = elsewhere;
  Json list{Json::Array{}};
  for (const Call& call : calls) {
    Json row{Json::Array{}};
    row.push_back(call.number);
    row.push_back(call.kind);
    row.push_back(call.whose);
    row.push_back(call.bytes);
    row.push_back(static_cast<std::int64_t>(call.digest));
    list.push_back(std::move(row));
  }
  out["calls"] = std::move(list);
  return out;
}

Answer Answer::parse(const Json& json) {
  Answer answer;
  answer.belongs = json.at("belongs").as_bool();
  if (const Json* call = json.find("waits_in")) answer.waits_in = static_cast<std::uint64_t>(call->as_int());
  answer.unchanged = std::chrono::milliseconds(json.at("unchanged_ms").as_int());
  answer.elsewhere = json.at("elsewhere").as_string();
  for (const Json& item : json.at("calls").as_array()) {
    const Json::Array& row = item.as_array();
    if (row.size() != 5) throw JsonError("a call of " + std::to_string(row.size()) + " fields");
    answer.calls.push_back({static_cast<std::uint64_t>(row[0].as_int()), row[1].as_string(), row[2].as_string(),
                            row[3].as_int(), static_cast<std::uint64_t>(row[4].as_int())});
  }
  return answer;
}

Finding judge(const std::string& group, const std::map<int, Answer>& answers, const std::set<int>& silent) {
  Finding finding;
  finding.difference = difference_in(group, answers);
  std::optional<std::uint64_t> awaited;  // the earliest call that a rank waits in and others lack
  for (const auto& [waiter, answer] : answers) {
    if (!answer.waits_in || (awaited && *awaited <= *answer.waits_in)) continue;
    const std::uint64_t number = *answer.waits_in;
    const bool lacks = std::ranges::any_of(answers, [&](const auto& other) { return other.second.made() <= number; });
    if (lacks || !silent.empty()) awaited = number;
  }
  if (!awaited) return finding;
  std::vector<int> waiters;
  const Call* call = nullptr;
  std::string absent;
  for (const auto& [rank, answer] : answers) {
    if (answer.waits_in && *answer.waits_in >= *awaited) waiters.push_back(rank);
    if (call == nullptr) call = find_call(answer, *awaited);
    if (answer.made() <= *awaited) absent += (absent.empty() ? "" : "; ") + late_text(rank, answer);
  }
  if (!silent.empty())
    absent += (absent.empty() ? "" : "; ") + names_of({silent.begin(), silent.end()}) +
              " did not answer (stopped, or not reachable?)";
  if (call == nullptr || waiters.empty()) return finding;
  finding.late =
      names_of(waiters) + (waiters.size() == 1 ? " waits in " : " wait in ") + call_text(group, *call) + ": " + absent;
  return finding;
}

}  // namespace fsdp::watch
