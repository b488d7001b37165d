#include "rank/grpc_stream.h"

#include <utility>

namespace worker {
namespace {

enum class Done : std::intptr_t { kOpen = 1, kRead, kWrite, kEnd };

void* tag(Done what) {
  return reinterpret_cast<void*>(what);
}

}  // namespace

GrpcStream::GrpcStream(GrpcClient& client, std::function<void(const muster::v1::BeatResponse&)> answered,
                       std::function<void()> ended)
    : client_(client), answered_(std::move(answered)), ended_(std::move(ended)) {
  call_ = client_.begin_stream(context_, queue_);
  call_->StartCall(tag(Done::kOpen));
  thread_ = std::thread([this] { run(); });
}

GrpcStream::~GrpcStream() {
  context_.TryCancel();
  thread_.join();
  client_.end_stream(context_);
}

bool GrpcStream::write(const muster::v1::HeartbeatRequest& request, Millis limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  std::unique_lock lock(mutex_);
  const auto may_write = [&] { return is_ending_ || (is_open_ && !is_writing_); };
  if (!changed_.wait_until(lock, until, may_write) || is_ending_) return false;
  is_writing_ = true;
  ++written_;
  call_->Write(request, tag(Done::kWrite));
  return changed_.wait_until(lock, until, [&] { return is_ending_ || !is_writing_; }) && !is_ending_;
}

std::optional<grpc::Status> GrpcStream::end() const {
  std::lock_guard lock(mutex_);
  return end_;
}

void GrpcStream::run() {
  void* what = nullptr;
  bool ok = false;
  const auto finish = [&] {
    if (std::exchange(is_ending_, true)) return;
    call_->Finish(&status_, tag(Done::kEnd));
  };
  while (queue_.Next(&what, &ok)) {
    if (what == tag(Done::kRead) && ok) answered_(answer_);
    bool has_ended = false;
    {
      std::lock_guard lock(mutex_);
      if (what == tag(Done::kWrite)) {
        is_writing_ = false;
      } else if (what == tag(Done::kEnd)) {
        end_ = status_;
        has_ended = true;
      } else if (!ok) {
        finish();
      } else {
        is_open_ = true;
        call_->Read(&answer_, tag(Done::kRead));
      }
      changed_.notify_all();
    }
    if (!has_ended) continue;
    ended_();
    queue_.Shutdown();
  }
}

}  // namespace worker
