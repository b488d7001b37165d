#include "rpc/followers.h"

#include <algorithm>
#include <vector>

namespace rpc {
namespace {

constexpr core::Millis kTick{50};
constexpr std::size_t kMostUser = 64;

}  // namespace

std::string caller_of(const grpc::ServerContextBase& context) {
  const auto& metadata = context.client_metadata();
  if (const auto found = metadata.find("muster-user"); found != metadata.end() && !found->second.empty()) {
    return {found->second.data(), std::min(found->second.size(), kMostUser)};
  }
  const auto peer = context.peer();
  return peer.substr(0, peer.rfind(':'));
}

Followers::Followers(service::Controller& controller)
    : controller_(controller), loop_("followers were not looked after", true, [this] { return look(); }) {
  loop_.start();
}

std::size_t Followers::open() const {
  const std::lock_guard lock(mutex_);
  return open_;
}

bool Followers::is_stopping() const {
  const std::lock_guard lock(mutex_);
  return stopping_;
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
  const auto found = users_.find(user);
  if (follows && found != users_.end() && found->second >= kMostOfUser) {
    return failure(kCode, "max_streams_of_user: " + user + " has " + std::to_string(kMostOfUser) +
                              " followers open, the most of one user; end one" + remedy);
  }
  if (follows) ++users_[user];
  ++open_;
  return grpc::Status::OK;
}

void Followers::leave(const std::string& user, bool follows) {
  const std::lock_guard lock(mutex_);
  --open_;
  if (!follows) return;
  if (const auto found = users_.find(user); --found->second == 0) users_.erase(found);
}

// The queue has room for two turns of each follower, and a follower has one at a time.
void Followers::run(std::shared_ptr<Waiter> who) {
  [[maybe_unused]] const bool queued = pool_.post([who = std::move(who)] { who->turn(); });
}

void Followers::wait(std::shared_ptr<Waiter> who, const Rest& rest, std::uint64_t seen) {
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    is_first = waiting_.empty();
    waiting_.push_back({std::move(who), rest, seen, Clock::now()});
  }
  if (is_first) loop_.wake();
}

// Without followers nothing ticks.
std::optional<core::Millis> Followers::look() {
  std::vector<std::shared_ptr<Waiter>> due;
  bool more = false;
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
  }
  for (auto& who : due) run(std::move(who));
  return more ? std::optional(kTick) : std::nullopt;
}

void Followers::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  loop_.wake();
}

}  // namespace rpc
