#include "rpc/follow.h"

#include "rpc/call.h"

namespace rpc {

grpc::Status Streams::run(const std::function<grpc::Status()>& body) {
  {
    std::lock_guard lock(mutex_);
    if (open_ >= most_) {
      return failure(grpc::StatusCode::RESOURCE_EXHAUSTED,
                     "max_streams: " + std::to_string(most_) +
                         " streams are open, the limit; end a follower (muster logs -f, list -w) and try again");
    }
    ++open_;
  }
  const auto status = guarded(body);
  std::lock_guard lock(mutex_);
  --open_;
  return status;
}

std::size_t Streams::open() const {
  std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(open_);
}

void Streams::stop() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
}

bool Streams::pause(core::Millis time) {
  std::unique_lock lock(mutex_);
  return !stop_.wait_for(lock, time, [this] { return stopping_; });
}

bool Streams::stopping() const {
  std::lock_guard lock(mutex_);
  return stopping_;
}

Follow::Follow(service::Controller& controller, Streams& streams, const grpc::ServerContext& context, core::JobId job)
    : controller_(controller), streams_(streams), context_(context), job_(job) {
  seen_ = controller_.wait_change(job_, 0, core::Millis(0));
}

bool Follow::next() {
  if (!alive() || !streams_.pause(kMinTurn)) return false;
  seen_ = controller_.wait_change(job_, seen_, kMaxTurn - kMinTurn);
  return alive();
}

bool Follow::alive() const {
  return !context_.IsCancelled() && !streams_.stopping();
}

grpc::Status Follow::status() const {
  if (streams_.stopping()) {
    return failure(grpc::StatusCode::UNAVAILABLE, "musterd is shutting down; follow again when it is back");
  }
  return failure(grpc::StatusCode::CANCELLED, "the client left");
}

}  // namespace rpc
