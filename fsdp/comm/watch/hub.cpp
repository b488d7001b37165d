#include "fsdp/comm/watch/hub.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

namespace fsdp::watch {
namespace {

constexpr std::size_t kNamed = 8;  // ranks that a text names
constexpr std::size_t kLongestLine = 1 << 20;

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
  Json::Array list;
  for (const Call& call : calls)
    list.push_back(Json::Array{call.number, call.kind, call.whose, call.bytes, static_cast<std::int64_t>(call.digest)});
  Json out = Json::Object{{"belongs", belongs},
                          {"unchanged_ms", std::int64_t{unchanged.count()}},
                          {"elsewhere", elsewhere},
                          {"calls", std::move(list)}};
  if (waits_in) out["waits_in"] = *waits_in;
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

void Hub::came(int rank) {
  ranks_.insert(rank);
  for (const auto& [other, message] : gone_) send_(rank, message);
}

void Hub::gone(int rank, const std::string& why) {
  lost(rank, Json::Object{{"why", why}});
}

void Hub::lost(int rank, Json message) {
  if (ranks_.erase(rank) == 0) return;  // it has said goodbye
  message["gone"] = rank;
  gone_[rank] = message;
  tell_all(message);
  for (auto& [group, question] : questions_) question.silent.erase(rank);
}

void Hub::heard(int rank, const Json& message, Clock::time_point now) {
  if (const Json* group = message.find("ask")) {
    if (!verdict_.empty()) return decide(verdict_);
    auto [place, is_new] = questions_.try_emplace(group->as_string());
    if (!is_new) return;  // the answer goes to all
    Question& question = place->second;
    for (const Json& member : message.at("ranks").as_array())
      question.ranks.push_back(static_cast<int>(member.as_int()));
    for (const int member : question.ranks)
      if (!gone_.contains(member)) question.silent.insert(member);
    question.deadline = now + patience_;
    tell(question.ranks, Json::Object{{"query", *group}});
  } else if (const Json* answered = message.find("answer")) {
    const auto question = questions_.find(answered->as_string());
    if (question == questions_.end()) return;  // came too late
    question->second.silent.erase(rank);
    Answer answer = Answer::parse(message);
    if (answer.belongs) question->second.answers[rank] = std::move(answer);
  } else if (const Json* verdict = message.find("verdict")) {
    decide(verdict->as_string());
  } else if (const Json* made = message.find("bye")) {
    lost(rank, Json::Object{{"why", "its mesh was destroyed"}, {"made", *made}});
  } else {
    throw JsonError("a message of no known kind");
  }
}

void Hub::look(Clock::time_point now) {
  for (auto question = questions_.begin(); question != questions_.end();) {
    if (!question->second.silent.empty() && now < question->second.deadline) {
      ++question;
      continue;
    }
    const auto ended = questions_.extract(question++);
    conclude(ended.key(), ended.mapped());
  }
}

void Hub::tell(std::vector<int> ranks, const Json& message) {
  for (const int rank : ranks)
    if (ranks_.contains(rank)) send_(rank, message);
}

void Hub::tell_all(const Json& message) {
  tell({ranks_.begin(), ranks_.end()}, message);
}

/// The first verdict stays. It names the cause, and later ones may name its consequences.
void Hub::decide(const std::string& verdict) {
  if (verdict_.empty()) verdict_ = verdict;
  tell_all(Json::Object{{"verdict", verdict_}});
}

void Hub::conclude(const std::string& group, const Question& question) {
  const Finding finding = judge(group, question.answers, question.silent);
  if (!finding.difference.empty()) return decide(finding.difference);
  if (finding.late.empty()) return;
  tell(question.ranks, Json::Object{{"late", finding.late}, {"group", group}});
}

void Line::put(const std::string& text) {
  if (is_gone_) return;
  out_ += text + "\n";
  flush();
}

void Line::flush() {
  while (wants_to_write()) {
    const ssize_t sent = ::send(fd(), out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return;
    if (sent < 0) {
      out_.clear();  // take() reads what has arrived, and then learns that the other end is gone
      return;
    }
    out_.erase(0, static_cast<std::size_t>(sent));
  }
}

std::vector<std::string> Line::take() {
  std::vector<std::string> lines;
  std::array<char, 1 << 14> part;
  while (!is_gone_) {
    const ssize_t got = ::recv(fd(), part.data(), part.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) {
      is_gone_ = true;
      break;
    }
    in_.append(part.data(), static_cast<std::size_t>(got));
    std::size_t begin = 0;
    for (std::size_t end; (end = in_.find('\n', begin)) != std::string::npos; begin = end + 1)
      lines.push_back(in_.substr(begin, end - begin));
    in_.erase(0, begin);
    if (in_.size() > kLongestLine) is_gone_ = true;
  }
  return lines;
}

// A close() with unread bytes would reset the connection, and the other end might lose the last lines.
void Line::close(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  const auto may_wait = [&](short events) {
    return std::chrono::steady_clock::now() < deadline && net::is_ready(fd(), events, deadline);
  };
  while (wants_to_write() && may_wait(POLLOUT)) flush();
  ::shutdown(fd(), SHUT_WR);
  while (!is_gone_ && may_wait(POLLIN)) take();
}

}  // namespace fsdp::watch
