#pragma once
#include <c10/util/Exception.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "fsdp/comm/transport.h"

/// Calls `before` before each start and each wait of a collective. `before` may sleep or throw.
class WatchedTransport : public fsdp::Transport {
 public:
  using Before = std::function<void(const std::string& what)>;

  WatchedTransport(std::unique_ptr<fsdp::Transport> inner, Before before)
      : inner_(std::move(inner)), before_(std::move(before)) {}

  std::unique_ptr<fsdp::Pending> all_gather_into(const at::Tensor& buffer, std::string_view whose) override {
    return start("all-gather of " + std::string(whose), [&] { return inner_->all_gather_into(buffer, whose); });
  }
  std::unique_ptr<fsdp::Pending> reduce_scatter(const at::Tensor& input, const at::Tensor& output,
                                                std::string_view whose) override {
    return start("reduce-scatter of " + std::string(whose),
                 [&] { return inner_->reduce_scatter(input, output, whose); });
  }
  std::unique_ptr<fsdp::Pending> start_all_reduce(const at::Tensor& tensor, std::string_view whose) override {
    return start("all-reduce of " + std::string(whose), [&] { return inner_->start_all_reduce(tensor, whose); });
  }
  void all_reduce(at::Tensor& tensor, fsdp::Reduction reduction) override {
    before_("all-reduce");
    inner_->all_reduce(tensor, reduction);
  }
  void broadcast(at::Tensor& tensor, int root) override {
    before_("broadcast");
    inner_->broadcast(tensor, root);
  }
  void barrier() override {
    before_("barrier");
    inner_->barrier();
  }
  void abort(const std::string& why) override { inner_->abort(why); }
  bool host_waits() const override { return inner_->host_waits(); }
  void trim() override { inner_->trim(); }

 private:
  struct Watched : fsdp::Pending {
    Watched(std::unique_ptr<fsdp::Pending> p, Before b, std::string w)
        : pending(std::move(p)), before(std::move(b)), what(std::move(w)) {}
    void wait() override {
      before("the wait for the " + what);
      pending->wait();
    }
    std::unique_ptr<fsdp::Pending> pending;
    Before before;
    std::string what;
  };

  template <typename Start>
  std::unique_ptr<fsdp::Pending> start(const std::string& what, const Start& begin) {
    before_("the start of the " + what);
    return std::make_unique<Watched>(begin(), before_, what);
  }

  std::unique_ptr<fsdp::Transport> inner_;
  Before before_;
};
