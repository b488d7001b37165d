#include "controller/service/draining.h"

#include <utility>

#include "controller/core/core_text.h"

namespace service {

namespace v1 = muster::v1;
using common::Outcome;
using common::Refusal;

v1::DrainView Draining::view(const jobs::EventLog& event_log) const {
  v1::DrainView view;
  if (const auto order = this->order()) {
    view.set_drained(true);
    view.set_user(order->user);
    view.set_since(common::time_text(order->since));
    view.set_reason(order->reason);
  }
  std::uint32_t running = 0, queued = 0;
  for (const auto& job : event_log.open_jobs()) {
    const auto* attempt = job->current();
    if (attempt == nullptr || attempt->state == core::AttemptState::kEnded) continue;
    ++(attempt->state == core::AttemptState::kQueued ? queued : running);
  }
  view.set_attempts_running(running);
  view.set_attempts_queued(queued);
  return view;
}

Outcome<v1::DrainView> Draining::change(const Parts& parts, std::optional<core::Drain> order, const std::string& user) {
  const bool changed = order != this->order();
  if (changed) {
    try {
      store_.change_drain(order, user, parts.clock.wall());
    } catch (const store::Error& error) {
      return Refusal::unavailable(error.what());
    }
    const std::lock_guard lock(mutex_);
    order_ = std::move(order);
  }
  parts.runner.reconsider();
  auto answer = view(parts.event_log);
  answer.set_changed(changed);
  return answer;
}

Outcome<v1::DrainView> Draining::begin(const Parts& parts, const v1::DrainRequest& request) {
  if (request.reason().size() > kMostReason) {
    return Refusal::invalid("reason: it has " + std::to_string(request.reason().size()) + " bytes; want at most " +
                            std::to_string(kMostReason));
  }
  const std::lock_guard one_at_a_time(changing_);
  const auto was = order();
  const auto user = user_or_unknown(request.user());
  return change(parts, core::Drain{was ? was->since : parts.clock.wall(), user, core::plain_words(request.reason())},
                user);
}

Outcome<v1::DrainView> Draining::end(const Parts& parts, const v1::ResumeRequest& request) {
  const std::lock_guard one_at_a_time(changing_);
  return change(parts, std::nullopt, user_or_unknown(request.user()));
}

}  // namespace service
