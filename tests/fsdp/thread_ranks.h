#pragma once
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "fsdp/comm/device_mesh.h"
#include "fsdp/comm/transport.h"
#include "tests/fsdp/rank_threads.h"

/// The place where the ranks of one process meet. The n-th collective of each rank meets the n-th of all others.
class Meetings {
 public:
  Meetings(int world_size, std::chrono::milliseconds timeout) : world_size_(world_size), timeout_(timeout) {}

  /// Leaves this rank's tensor for the n-th meeting.
  void bring(std::int64_t n, int rank, const std::string& what, const at::Tensor& tensor) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Meeting& meeting = meetings_[n];
    if (meeting.tensors.empty()) meeting.tensors.resize(world_size_);
    if (meeting.what.empty()) meeting.what = what;
    if (meeting.what != what && meeting.problem.empty())
      meeting.problem = what + " of rank " + std::to_string(rank) + " met " + meeting.what;
    meeting.tensors[rank] = tensor;
    if (++meeting.came == world_size_) all_came_.notify_all();
  }

  /// Returns what all ranks brought, once all have come.
  std::vector<at::Tensor> wait(std::int64_t n) {
    std::unique_lock<std::mutex> lock(mutex_);
    Meeting& meeting = meetings_[n];
    const bool complete = all_came_.wait_for(lock, timeout_, [&] { return meeting.came == world_size_; });
    TORCH_CHECK(complete, meeting.what, ": only ", meeting.came, " of ", world_size_, " ranks came");
    TORCH_CHECK(meeting.problem.empty(), meeting.problem);
    std::vector<at::Tensor> tensors = meeting.tensors;
    if (++meeting.left == world_size_) meetings_.erase(n);
    return tensors;
  }

 private:
  struct Meeting {
    std::string what, problem;
    std::vector<at::Tensor> tensors;
    int came = 0, left = 0;
  };

  const int world_size_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable all_came_;
  std::map<std::int64_t, Meeting> meetings_;
};

/// Collectives between threads, without sockets. So thousands of small ones take a second.
class ThreadTransport : public fsdp::Transport {
 public:
  ThreadTransport(std::shared_ptr<Meetings> meetings, int rank, int world_size)
      : meetings_(std::move(meetings)), rank_(rank), world_size_(world_size) {}

  std::unique_ptr<fsdp::Pending> all_gather_into(const at::Tensor& buffer, std::string_view whose) override {
    return start("all-gather of " + std::string(whose), part(buffer, rank_),
                 [this, buffer](const std::vector<at::Tensor>& brought) {
                   for (int rank = 0; rank < world_size_; ++rank)
                     if (rank != rank_) part(buffer, rank).copy_(brought[rank]);
                 });
  }

  std::unique_ptr<fsdp::Pending> reduce_scatter(const at::Tensor& input, const at::Tensor& output,
                                                std::string_view whose) override {
    return start("reduce-scatter of " + std::string(whose), input,
                 [this, output](const std::vector<at::Tensor>& brought) {
                   std::vector<at::Tensor> parts;
                   for (const at::Tensor& tensor : brought) parts.push_back(part(tensor, rank_));
                   fsdp::tree_sum(parts, std::vector<bool>(parts.size(), false), output);
                 });
  }

  std::unique_ptr<fsdp::Pending> start_all_reduce(const at::Tensor& tensor, std::string_view whose) override {
    return start("all-reduce of " + std::string(whose), tensor, [tensor](const std::vector<at::Tensor>& brought) {
      fsdp::tree_sum(brought, std::vector<bool>(brought.size(), false), tensor);
    });
  }

  void all_reduce(at::Tensor& tensor, fsdp::Reduction reduction) override {
    start("all-reduce", tensor, [&](const std::vector<at::Tensor>& brought) {
      tensor.copy_(brought[0]);
      for (int rank = 1; rank < world_size_; ++rank) {
        if (reduction == fsdp::Reduction::kSum) tensor.add_(brought[rank]);
        if (reduction == fsdp::Reduction::kMax) tensor.copy_(at::maximum(tensor, brought[rank]));
      }
    })->wait();
  }

  void broadcast(at::Tensor& tensor, int root) override {
    start("broadcast", tensor, [&](const std::vector<at::Tensor>& brought) { tensor.copy_(brought[root]); })->wait();
  }

  void barrier() override {
    start("barrier", at::zeros({1}), [](const auto&) {})->wait();
  }

 private:
  using Finish = std::function<void(const std::vector<at::Tensor>&)>;
  struct Started : fsdp::Pending {
    Started(ThreadTransport& t, std::int64_t number, Finish f) : transport(t), n(number), finish(std::move(f)) {}
    void wait() override {
      const at::NoGradGuard no_grad;
      finish(transport.meetings_->wait(n));
    }
    ThreadTransport& transport;
    std::int64_t n;
    Finish finish;
  };

  at::Tensor part(const at::Tensor& buffer, int rank) const {
    const std::int64_t chunk = buffer.numel() / world_size_;
    return buffer.narrow(0, rank * chunk, chunk);
  }

  std::unique_ptr<fsdp::Pending> start(const std::string& what, const at::Tensor& mine, Finish finish) {
    const at::NoGradGuard no_grad;
    const std::int64_t n = next_++;
    meetings_->bring(n, rank_, what + " (" + std::to_string(mine.nbytes()) + " bytes)", mine.detach().clone());
    return std::make_unique<Started>(*this, n, std::move(finish));
  }

  std::shared_ptr<Meetings> meetings_;
  int rank_;
  int world_size_;
  std::int64_t next_ = 0;
};

/// The meetings of all groups of a mesh.
class ThreadGroups {
 public:
  explicit ThreadGroups(std::chrono::milliseconds timeout) : timeout_(timeout) {}

  std::unique_ptr<fsdp::Transport> join(const fsdp::MeshGroup& group) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto& meetings = groups_[group.axis + std::to_string(group.number)];
    if (!meetings) meetings = std::make_shared<Meetings>(group.size, timeout_);
    return std::make_unique<ThreadTransport>(meetings, group.rank, group.size);
  }

 private:
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Meetings>> groups_;
};

/// run_ranks() over ThreadTransport. `decorate` may put another transport around each.
using Decorate =
    std::function<std::unique_ptr<fsdp::Transport>(std::unique_ptr<fsdp::Transport>, const fsdp::MeshGroup&)>;
inline void run_thread_ranks(int world_size, const std::function<void(fsdp::DeviceMesh&)>& body,
                             std::chrono::milliseconds timeout = std::chrono::seconds(20),
                             const fsdp::MeshOptions& options = {}, const Decorate& decorate = {}) {
  ThreadGroups groups(timeout);
  run_rank_threads(world_size, [&](int rank) {
    const auto make = [&](const fsdp::MeshGroup& group) {
      auto transport = groups.join(group);
      return decorate ? decorate(std::move(transport), group) : std::move(transport);
    };
    fsdp::DeviceMesh mesh(rank, world_size, make, options);
    body(mesh);
  });
}
