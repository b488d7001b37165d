#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "fsdp/comm/transport.h"

/// Where the ranks of a DeafTransport meet.
class DeafMeeting {
 public:
  explicit DeafMeeting(int world_size) : world_size_(world_size) {}

  void come(std::uint64_t number, const std::string& what) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++came_[{number, what}];
    changed_.notify_all();
  }
  /// Returns when all ranks have come with the same call. False: abort() has ended the wait.
  bool await(std::uint64_t number, const std::string& what, const bool& aborted) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return aborted || came_[{number, what}] == world_size_; });
    return !aborted;
  }
  void abort(bool& aborted) {
    const std::lock_guard<std::mutex> lock(mutex_);
    aborted = true;
    changed_.notify_all();
  }

 private:
  const int world_size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::pair<std::uint64_t, std::string>, int> came_;
};

/// Fails as NCCL does: calls of ranks that don't fit wait for ever, nobody notices that a peer is gone, and abort()
/// ends waits with unknown values. It moves nothing. With `host_waits` false, wait() returns at once, and the caller
/// blocks in synchronize(), as a host does that reads a number of its device.
class DeafTransport : public fsdp::Transport {
 public:
  DeafTransport(std::shared_ptr<DeafMeeting> meeting, bool host_waits)
      : meeting_(std::move(meeting)), host_waits_(host_waits) {}

  std::unique_ptr<fsdp::Pending> all_gather_into(const at::Tensor& buffer, std::string_view) override {
    return start("all-gather " + std::to_string(buffer.numel()));
  }
  std::unique_ptr<fsdp::Pending> reduce_scatter(const at::Tensor& input, const at::Tensor&, std::string_view) override {
    return start("reduce-scatter " + std::to_string(input.numel()));
  }
  std::unique_ptr<fsdp::Pending> start_all_reduce(const at::Tensor& tensor, std::string_view) override {
    return start("all-reduce " + std::to_string(tensor.numel()));
  }
  void all_reduce(at::Tensor&, fsdp::Reduction) override { start("all-reduce")->wait(); }
  void broadcast(at::Tensor&, int) override { start("broadcast")->wait(); }
  void barrier() override { start("barrier")->wait(); }
  void abort(const std::string&) override { meeting_->abort(aborted_); }
  bool host_waits() const override { return host_waits_; }

  /// Waits for the last call.
  void synchronize() { meeting_->await(number_ - 1, last_, aborted_); }

 private:
  struct Started : fsdp::Pending {
    explicit Started(DeafTransport& t) : transport(t), number(t.number_ - 1), what(t.last_) {}
    void wait() override {
      if (!transport.host_waits_) return;
      TORCH_CHECK(transport.meeting_->await(number, what, transport.aborted_), "aborted");
    }
    DeafTransport& transport;
    std::uint64_t number;
    std::string what;
  };

  std::unique_ptr<fsdp::Pending> start(const std::string& what) {
    last_ = what;
    meeting_->come(number_++, what);
    return std::make_unique<Started>(*this);
  }

  std::shared_ptr<DeafMeeting> meeting_;
  const bool host_waits_;
  bool aborted_ = false;  // guarded by the meeting
  std::uint64_t number_ = 0;
  std::string last_;
};
