#include "fsdp/comm/watch/hub.h"

#include <utility>

namespace fsdp::watch {

void Hub::came(int rank) {
  ranks_.insert(rank);
  for (const auto& [other, message] : gone_) send_(rank, message);
}

void Hub::gone(int rank, const std::string& why) {
  Json message;
  message["why"] = why;
  lost(rank, std::move(message));
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
    Json query;
    query["query"] = *group;
    tell(question.ranks, query);
  } else if (const Json* answered = message.find("answer")) {
    const auto question = questions_.find(answered->as_string());
    if (question == questions_.end()) return;  // came too late
    question->second.silent.erase(rank);
    Answer answer = Answer::parse(message);
    if (answer.belongs) question->second.answers[rank] = std::move(answer);
  } else if (const Json* verdict = message.find("verdict")) {
    decide(verdict->as_string());
  } else if (const Json* made = message.find("bye")) {
    Json left;
    left["why"] = "its mesh was destroyed";
    left["made"] = *made;
    lost(rank, std::move(left));
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
  Json message;
  message["verdict"] = verdict_;
  tell_all(message);
}

void Hub::conclude(const std::string& group, const Question& question) {
  const Finding finding = judge(group, question.answers, question.silent);
  if (!finding.difference.empty()) return decide(finding.difference);
  if (finding.late.empty()) return;
  Json message;
  message["late"] = finding.late;
  message["group"] = group;
  tell(question.ranks, message);
}

}  // namespace fsdp::watch
