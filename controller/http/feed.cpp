#include "controller/http/feed.h"

#include <vector>

#include "controller/service/controller.h"
#include "proto/json/proto_json.h"

namespace http {
namespace {

using nlohmann::ordered_json;

// How long a step waits for a change. A new subscriber and the destructor wait for the step.
constexpr core::Millis kSlice{100};
constexpr std::uint32_t kPage = 256;
constexpr std::uint32_t kProgressJobs = 200;

std::string format(const char* type, const ordered_json& data, std::optional<std::int64_t> id = std::nullopt) {
  std::string out;
  if (id) out += "id: " + std::to_string(*id) + "\n";
  out += std::string("event: ") + type + "\ndata: ";
  // The JSON has no line breaks, which would end the message.
  out += data.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n\n";
  return out;
}

std::string format_event(const muster::v1::Event& event) {
  auto json = proto::to_json(event);
  json.erase("payload");
  return format("job-changed", json, event.id());
}

std::string format_progress(const muster::v1::Job& job) {
  const auto whole = proto::to_json(job);
  ordered_json out = {{"job_id", job.id()}, {"attempt", job.attempts_size() ? job.attempts().rbegin()->number() : 0}};
  for (const char* name :
       {"state", "status", "step", "steps_total", "loss", "tokens_per_s", "last_checkpoint_step", "version"})
    out[name] = whole.at(name);
  return format("progress", out);
}

}  // namespace

Feed::Feed(service::Controller& controller)
    : controller_(controller), loop_("feed", "the dashboard is not told of changes", true, [this] { return step(); }) {
  loop_.start();
}

std::uint64_t Feed::subscribe(std::optional<std::int64_t> after, Sink sink) {
  const std::lock_guard lock(mutex_);
  subscribers_[next_subscription_] = {std::move(sink), after, false};
  loop_.wake();
  return next_subscription_++;
}

void Feed::tell_all(const std::string& text) {
  const auto shared = std::make_shared<const std::string>(text);
  const std::lock_guard lock(mutex_);
  for (const auto& [id, subscriber] : subscribers_)
    if (subscriber.welcome) subscriber.sink(shared);
}

// Sends the newcomer what it missed, up to last_event_. Later events go to all subscribers.
void Feed::welcome(const Subscriber& newcomer) {
  const auto say = [&](const std::string& text) { newcomer.sink(std::make_shared<const std::string>(text)); };
  std::int64_t at = newcomer.after.value_or(last_event_);
  std::string missed;
  std::uint32_t count = 0;
  bool too_much = at > last_event_;
  while (at < last_event_ && !too_much) {
    const auto events = controller_.events(0, at, kPage);
    if (events.empty()) break;
    for (const auto& event : events) {
      if (event.id() > last_event_) break;
      missed += format_event(event);
      ++count;
    }
    at = events.back().id();
    too_much = count > kMaxReplay;
  }
  const ordered_json hello = {{"started_at", controller_.status().started_at()}};
  if (too_much) {
    say(format("hello", hello, last_event_) + format("reset", ordered_json::object(), last_event_));
  } else {
    // The hello's id must not be past the events that follow it: the reader may reconnect in between.
    say(format("hello", hello, newcomer.after.value_or(last_event_)) + missed);
  }
}

void Feed::welcome_new() {
  std::vector<std::pair<std::uint64_t, Subscriber>> newcomers;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, subscriber] : subscribers_)
      if (!subscriber.welcome) newcomers.emplace_back(id, subscriber);
  }
  for (const auto& [id, newcomer] : newcomers) {
    welcome(newcomer);
    const std::lock_guard lock(mutex_);
    const auto found = subscribers_.find(id);
    if (found != subscribers_.end()) found->second.welcome = true;
  }
}

void Feed::tell_events() {
  // The number of pages is bounded, so that newcomers get their turn.
  for (int page = 0; page < 16; ++page) {
    const auto events = controller_.events(0, last_event_, kPage);
    for (const auto& event : events) {
      last_event_ = event.id();
      tell_all(format_event(event));
    }
    if (events.size() < kPage) return;
  }
}

void Feed::tell_progress() {
  muster::v1::ListRequest request;
  request.add_states("running");
  request.add_states("stopping");
  request.set_limit(kProgressJobs);
  std::map<core::JobId, Seen> now;
  const auto list = controller_.list(request);
  for (const auto& job : list.jobs()) {
    Seen seen{job.attempts_size() ? job.attempts().rbegin()->number() : 0, job.step(), job.state()};
    const auto before = seen_.find(job.id());
    if (before == seen_.end() || before->second != seen) tell_all(format_progress(job));
    now.emplace(job.id(), std::move(seen));
  }
  seen_ = std::move(now);
}

std::optional<core::Millis> Feed::step() {
  {
    const std::lock_guard lock(mutex_);
    if (subscribers_.empty()) {
      last_event_ = kUnknown;
      return std::nullopt;
    }
  }
  try {
    if (last_event_ == kUnknown) last_event_ = controller_.last_event_id();
    welcome_new();
    const auto newest = controller_.wait_change(0, change_, kSlice);
    moved_ |= newest != change_;
    if (newest != change_) tell_events();
    change_ = newest;
    const auto now = std::chrono::steady_clock::now();
    if (moved_ && now >= next_progress_) {
      tell_progress();
      next_progress_ = now + kProgressInterval;
      moved_ = false;
    }
    if (now >= next_beat_) {
      tell_all(": heartbeat\n" + format("beat", ordered_json::object()));
      next_beat_ = now + kBeatInterval;
    }
  } catch (const std::exception&) {
    // The store has a problem, which /api/v1/status shows. The next step tries again.
  }
  return kSlice / 2;
}

}  // namespace http
