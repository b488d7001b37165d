#include "controller/rpc/followers.h"

#include <algorithm>
#include <vector>

namespace rpc {
namespace {

constexpr core::Millis kTick{50};
constexpr std::size_t kMostUser = 64;
/// How often it is looked at whether clients take their messages, as a part of the patience with them.
constexpr int kLooks = 10;

}  // namespace

std::string caller_of(const grpc::ServerContextBase& context) {
  const auto& metadata = context.client_metadata();
  if (const auto found = metadata.find("muster-user"); found != metadata.end() && !found->second.empty()) {
    return {found->second.data(), std::min(found->second.size(), kMostUser)};
  }
  const auto peer = context.peer();
  return peer.substr(0, peer.rfind(':'));
}

Followers::Followers(service::Controller& controller, core::Millis patience)
    : controller_(controller),
      patience_(patience),
      loop_("followers", "followers were not looked after", true, [this] { return look(); }) {
  loop_.start();
}

grpc::Status Followers::leaving() {
  return failure(grpc::StatusCode::UNAVAILABLE, "musterd is shutting down; follow again when it is back");
}

grpc::Status Followers::enter(const std::string& user, bool follows) {
  constexpr auto kCode = grpc::StatusCode::RESOURCE_EXHAUSTED;
  const std::string remedy = " (muster logs -f, wait, list -w) and try again";
  const std::lock_guard lock(mutex_);
  if (stopping_) return leaving();
  if (open_ >= kMost) {
    return failure(kCode, "max_streams: " + std::to_string(kMost) + " followers are open, the limit; end one" + remedy);
  }
  auto& its = users_[user];
  if (follows && its.followers >= kMostOfUser) {
    return failure(kCode, "max_streams_of_user: " + user + " has " + std::to_string(kMostOfUser) +
                              " followers open, the most of one user; end one" + remedy);
  }
  if (!follows && its.reads >= kMostReadsOfUser) {
    return failure(kCode, "max_streams_of_user: " + user + " has " + std::to_string(kMostReadsOfUser) +
                              " reads open (muster logs, events, metrics), the most of one user; let one end and try "
                              "again");
  }
  ++(follows ? its.followers : its.reads);
  ++open_;
  return grpc::Status::OK;
}

void Followers::leave(const std::string& user, bool follows, const std::shared_ptr<Waiter>& who) {
  const std::lock_guard lock(mutex_);
  --open_;
  noted_.erase(who);
  const auto found = users_.find(user);
  --(follows ? found->second.followers : found->second.reads);
  if (found->second.followers + found->second.reads == 0) users_.erase(found);
}

void Followers::note(std::shared_ptr<Waiter> who) {
  const std::lock_guard lock(mutex_);
  noted_.insert(std::move(who));
  if (noted_.size() == 1) loop_.wake();
}

// The queue has room for two turns of each follower, and a follower has one at a time.
void Followers::run(std::shared_ptr<Waiter> who) {
  [[maybe_unused]] const bool queued = pool_.post([who = std::move(who)] { who->turn(); });
}

void Followers::wait(std::shared_ptr<Waiter> who, const Rest& rest, std::uint64_t seen) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back({std::move(who), rest, seen, Clock::now()});
  if (waiting_.size() == 1) loop_.wake();
}

// Without followers nothing ticks.
std::optional<core::Millis> Followers::look() {
  cancel_stalled();
  std::vector<std::shared_ptr<Waiter>> due;
  bool more = false, any = false;
  {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    for (auto at = waiting_.begin(); at != waiting_.end();) {
      const auto rested = now - at->since;
      const auto longest = std::max(at->rest.longest, core::Millis(waiting_.size()));
      const bool is_due = stopping_ || at->who->is_cancelled() || rested >= longest ||
                          (rested >= Rest::kLeast && controller_.newest_change(at->rest.job) > at->seen);
      if (is_due) due.push_back(std::move(at->who));
      at = is_due ? waiting_.erase(at) : std::next(at);
    }
    more = !waiting_.empty();
    any = !noted_.empty();
  }
  for (auto& who : due) run(std::move(who));
  if (more) return kTick;
  return any ? std::optional(patience_ / kLooks) : std::nullopt;
}

// A client that takes nothing costs a message and a place, and no thread, until its time is over.
void Followers::cancel_stalled() {
  std::vector<std::shared_ptr<Waiter>> stalled;
  {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    if (now - checked_ < patience_ / kLooks) return;
    checked_ = now;
    for (const auto& who : noted_) {
      if (const auto since = who->writes_since(); since && now - *since > patience_) stalled.push_back(who);
    }
  }
  for (const auto& who : stalled) who->cancel();
}

void Followers::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  loop_.wake();
}

}  // namespace rpc
