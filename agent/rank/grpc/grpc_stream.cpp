#include "agent/rank/grpc/grpc_stream.h"

#include <utility>

namespace agent::rank {
namespace {

enum class Done : std::intptr_t { kOpen = 1, kRead, kWrite, kEnd };

void* tag(Done what) {
  return reinterpret_cast<void*>(what);
}

}  // namespace

template <typename Request, typename Response>
GrpcStream<Request, Response>::GrpcStream(GrpcClient& client, std::function<void(const Response&)> answered,
                                          std::function<void()> ended)
    : client_(client), answered_(std::move(answered)), ended_(std::move(ended)) {
  client_.begin_stream(context_, queue_, call_);
  call_->StartCall(tag(Done::kOpen));
  thread_ = std::thread([this] { run(); });
}

template <typename Request, typename Response>
GrpcStream<Request, Response>::~GrpcStream() {
  context_.TryCancel();
  thread_.join();
  client_.end_stream(context_);
}

template <typename Request, typename Response>
bool GrpcStream<Request, Response>::write(const Request& request, Millis limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  std::unique_lock lock(mutex_);
  const auto may_write = [&] { return is_ending_ || (is_open_ && !is_writing_); };
  if (!changed_.wait_until(lock, until, may_write) || is_ending_) return false;
  is_writing_ = true;
  ++written_;
  call_->Write(request, tag(Done::kWrite));
  return changed_.wait_until(lock, until, [&] { return is_ending_ || !is_writing_; }) && !is_ending_;
}

template <typename Request, typename Response>
std::optional<grpc::Status> GrpcStream<Request, Response>::end() const {
  std::lock_guard lock(mutex_);
  return end_;
}

template <typename Request, typename Response>
void GrpcStream<Request, Response>::run() {
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

template class GrpcStream<muster::v1::HeartbeatRequest, muster::v1::BeatResponse>;
template class GrpcStream<muster::v1::TaskRequest, muster::v1::TaskResponse>;

}  // namespace agent::rank
