#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/maximum.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "fsdp/comm/sockets/connect.h"
#include "fsdp/comm/sockets/peer_sockets.h"
#include "fsdp/comm/sockets/rank_tree.h"
#include "fsdp/comm/sockets/topic.h"
#include "fsdp/comm/transport.h"
#include "fsdp/tracing/error_text.h"

namespace fsdp {
namespace {

constexpr std::int64_t kPiece = 32 << 10;  // elements that LibTorch adds without threads of its own

void combine(Reduction reduction, const at::Tensor& out, const at::Tensor& left, const at::Tensor& right) {
  const auto at_once = [&](at::Tensor into, const at::Tensor& one, const at::Tensor& other) {
    if (reduction == Reduction::kSum) at::add_out(into, one, other);
    if (reduction == Reduction::kMax) at::maximum_out(into, one, other);
  };
  if (out.numel() <= kPiece) return at_once(out, left, right);
  for (std::int64_t begin = 0; begin < out.numel(); begin += kPiece) {
    const std::int64_t count = std::min(kPiece, out.numel() - begin);
    at_once(out.narrow(0, begin, count), left.narrow(0, begin, count), right.narrow(0, begin, count));
  }
}

/// A collective of this rank: stages, one after the other. A stage ends with what it does once all that it awaits has
/// arrived.
class Passage {
 public:
  struct Part {
    int peer;
    at::Tensor into;
  };
  struct Stage {
    std::vector<Part> awaited;
    std::function<void()> then;
  };

  explicit Passage(const Topic& of) : whose(of.whose), topic(of) { topic.whose = whose; }
  Passage(const Passage&) = delete;
  Passage& operator=(const Passage&) = delete;

  const std::string whose;
  Topic topic;
  std::vector<Stage> stages;
  std::size_t reached = 0;  // the stage that is under way
  std::vector<std::pair<int, PeerSockets::Pending>> sends;
  bool done = false;
  std::string error;
};

/// Passes the collectives of a rank on, each when those before it have been passed on. So the messages of a connection
/// have the order of the collectives, and none of them waits at the wrong place for its receive.
///
/// Stages run on the thread that starts a collective or on that of the sockets, and so while the rank computes. The
/// first failure is final: without a neighbour there is no way to the ranks behind it. It ends all connections of this
/// rank, so the neighbours fail, too, and those behind them.
class Relay {
 public:
  Relay(c10d::Store& store, const PeerGroup& group)
      : rank_(group.rank),
        tree_up_(group.peers.front()),
        timeout_(group.timeout),
        sockets_(std::make_unique<PeerSockets>(store, group)) {}

  /// `plan` gives the passage its stages.
  template <typename Plan>
  std::unique_ptr<Pending> start(const std::shared_ptr<Relay>& self, const Topic& topic, const Plan& plan) {
    const auto passage = std::make_shared<Passage>(topic);
    plan(*passage);
    const at::NoGradGuard no_grad;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      under_way_.push_back(passage);
      for (std::size_t stage = 0; stage < passage->stages.size(); ++stage) post(passage, stage);
      advance();
      if (passage->done) TORCH_CHECK(passage->error.empty(), passage->error);
    }
    return make_pending([self, passage] { self->wait(*passage); });
  }

  /// From a stage.
  void send(Passage& passage, int peer, const at::Tensor& tensor) {
    try {
      passage.sends.emplace_back(peer, sockets_->send(peer, passage.topic.tag, tensor));
    } catch (const std::exception& error) {
      passage.error = passage.topic.failure(rank_, peer, text_of(error));
      throw;
    }
  }

  void abort(const std::string& why) { sockets_->abort(why); }
  Links links() const { return {sockets_->connections(), sockets_->messages_sent()}; }

 private:
  // The mutex is held by callers of the functions from here to advance().

  void post(const std::shared_ptr<Passage>& passage, std::size_t stage) {
    for (const Passage::Part& part : passage->stages[stage].awaited) {
      if (passage->done) return;
      const auto then = [this, passage, stage, peer = part.peer](const std::string& error) {
        arrived(*passage, stage, peer, error);
      };
      try {
        sockets_->receive(part.peer, passage->topic.tag, part.into, then);
      } catch (const std::exception& error) {
        fail(part.peer, text_of(error));
      }
    }
  }

  /// Ends all collectives under way.
  void fail(int peer, const std::string& why) {
    for (const auto& passage : std::exchange(under_way_, {})) {
      if (passage->error.empty()) passage->error = passage->topic.failure(rank_, peer, why);
      passage->done = true;
    }
    sockets_->abort("the connection with rank " + std::to_string(peer) + " has ended: " + why);
  }

  void advance() {
    while (!under_way_.empty()) {
      Passage& passage = *under_way_.front();
      if (passage.reached == passage.stages.size()) {
        passage.done = true;
        under_way_.pop_front();
        continue;
      }
      Passage::Stage& stage = passage.stages[passage.reached];
      if (!stage.awaited.empty()) return;
      try {
        if (stage.then) stage.then();
      } catch (const std::exception& error) {
        return fail(tree_up_, text_of(error));
      }
      ++passage.reached;
    }
  }

  /// On the thread of the sockets.
  void arrived(Passage& passage, std::size_t stage, int peer, const std::string& error) {
    const at::NoGradGuard no_grad;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (passage.done) return;
      const std::size_t before = under_way_.size();
      std::erase_if(passage.stages[stage].awaited, [&](const Passage::Part& part) { return part.peer == peer; });
      error.empty() ? advance() : fail(peer, error);
      if (under_way_.size() == before) return;
    }
    changed_.notify_all();  // whoever waits needs the mutex
  }

  void wait(Passage& passage) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!changed_.wait_for(lock, timeout_, [&] { return passage.done; })) {
      const Passage& first = *under_way_.front();
      fail(first.stages[first.reached].awaited.front().peer,
           "timed out after " + std::to_string(timeout_.count()) + " ms");
    }
    lock.unlock();
    TORCH_CHECK(passage.error.empty(), passage.error);
    for (const auto& [peer, sent] : passage.sends) {
      try {
        sent->wait();
      } catch (const std::exception& error) {
        TORCH_CHECK(false, passage.topic.failure(rank_, peer, text_of(error)));
      }
    }
    passage.stages.clear();  // the thread that made the tensors gives them back
  }

  const int rank_, tree_up_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Passage>> under_way_;  // in the order of their starts
  std::unique_ptr<PeerSockets> sockets_;            // last, because its thread uses the others
};

class TreeTransport : public Transport {
 public:
  TreeTransport(const c10::intrusive_ptr<c10d::Store>& store, const TransportOptions& options)
      : store_(store), rank_(options.rank), world_size_(options.world_size), tree_(rank_, world_size_) {
    const std::string address = net::address_of(options.interface_address);
    try {
      relay_ = std::make_shared<Relay>(
          *store, PeerGroup{rank_, world_size_, address, options.timeout, options.check_peers, tree_.neighbours()});
    } catch (const std::exception& error) {
      TORCH_CHECK(false, "sockets on rank ", rank_, " of ", world_size_, ", address ", address,
                  ": no connection to the ranks beside it in the tree: ", text_of(error));
    }
  }

  /// The parts of the ranks below come from the children. Then everybody gets all parts.
  std::unique_ptr<Pending> all_gather_into(const at::Tensor& buffer, std::string_view whose) override {
    const std::int64_t chunk = buffer.numel() / world_size_;
    const auto parts = [&](int begin, int end) { return buffer.narrow(0, begin * chunk, (end - begin) * chunk); };
    const Topic topic = next("all-gather", whose, static_cast<std::int64_t>(buffer.nbytes()) / world_size_);
    return relay_->start(relay_, topic, [&](Passage& passage) {
      Passage::Stage up, down;
      for (const auto& child : tree_.children) up.awaited.push_back({child.rank, parts(child.rank, child.end)});
      up.then = send_to(passage, {tree_.up()}, parts(tree_.begin, tree_.end));
      const at::Tensor others = tree_.parent >= 0 ? buffer
                                : rank_ == 0      ? parts(tree_.end, world_size_)
                                                  : parts(0, tree_.begin);
      down.awaited.push_back({tree_.up(), others});
      down.then = send_to(passage, children(), buffer);
      passage.stages = {std::move(up), std::move(down)};
    });
  }

  std::unique_ptr<Pending> reduce_scatter(const at::Tensor& input, const at::Tensor& output,
                                          std::string_view whose) override {
    const at::Tensor whole = input.detach().clone();
    auto sum =
        reduce(next("reduce-scatter", whose, static_cast<std::int64_t>(output.nbytes())), whole, Reduction::kSum);
    return make_pending([sum = std::move(sum), whole, output, rank = rank_] {
      sum->wait();
      const at::NoGradGuard no_grad;
      output.copy_(whole.narrow(0, rank * output.numel(), output.numel()));
    });
  }

  std::unique_ptr<Pending> start_all_reduce(const at::Tensor& tensor, std::string_view whose) override {
    return reduce(next("all-reduce", whose, static_cast<std::int64_t>(tensor.nbytes())), tensor, Reduction::kSum);
  }

  void all_reduce(at::Tensor& tensor, Reduction reduction) override {
    const char* kind = reduction == Reduction::kMax ? "all-reduce's maximum" : "all-reduce";
    reduce(next(kind, {}, static_cast<std::int64_t>(tensor.nbytes())), tensor.view({-1}), reduction)->wait();
  }

  /// A rank that has got the bytes sends them to all neighbours that are farther from the root.
  void broadcast(at::Tensor& tensor, int root) override {
    const std::string whose = "rank " + std::to_string(root);
    const Topic topic = next("broadcast", whose, static_cast<std::int64_t>(tensor.nbytes()));
    const auto plan = [&](Passage& passage) {
      Passage::Stage stage;
      std::vector<int> farther = tree_.neighbours();
      if (rank_ != root) {
        std::erase(farther, tree_.towards(root));
        stage.awaited.push_back({tree_.towards(root), tensor});
      }
      stage.then = send_to(passage, std::move(farther), tensor);
      passage.stages.push_back(std::move(stage));
    };
    relay_->start(relay_, topic, plan)->wait();
  }

  void barrier() override { reduce(next("barrier", {}, 0), at::empty({0}, at::kByte), Reduction::kSum)->wait(); }

  void abort(const std::string& why) override { relay_->abort(why); }
  Links links() const override { return relay_->links(); }

 private:
  /// Replaces `tensor`, 1-D, by what the reduction makes of it over all ranks.
  std::unique_ptr<Pending> reduce(const Topic& topic, const at::Tensor& tensor, Reduction reduction) {
    return relay_->start(relay_, topic, [&](Passage& passage) {
      Passage::Stage up, down;
      std::vector<at::Tensor> below;
      for (const auto& child : tree_.children) {
        below.push_back(at::empty_like(tensor));
        up.awaited.push_back({child.rank, below.back()});
      }
      const bool is_top = tree_.parent < 0;
      // A top still sends its part while it adds the other one.
      const at::Tensor mine = is_top ? tensor.detach().clone() : tensor;
      up.then = [reduction, mine, below, send = send_to(passage, {tree_.up()}, mine)] {
        for (const at::Tensor& part : below) combine(reduction, mine, mine, part);
        send();
      };
      const at::Tensor theirs = is_top ? at::empty_like(tensor) : tensor;
      down.awaited.push_back({tree_.up(), theirs});
      down.then = [reduction, is_top, first = rank_ == 0, mine, theirs, tensor,
                   send = send_to(passage, children(), tensor)] {
        if (is_top) combine(reduction, tensor, first ? mine : theirs, first ? theirs : mine);
        send();
      };
      passage.stages = {std::move(up), std::move(down)};
    });
  }

  /// A stage's end.
  std::function<void()> send_to(Passage& passage, std::vector<int> peers, const at::Tensor& tensor) {
    return [relay = relay_.get(), &passage, peers = std::move(peers), tensor] {
      for (const int peer : peers) relay->send(passage, peer, tensor);
    };
  }

  std::vector<int> children() const {
    std::vector<int> ranks;
    for (const auto& child : tree_.children) ranks.push_back(child.rank);
    return ranks;
  }

  Topic next(const char* kind, std::string_view whose, std::int64_t bytes) { return {kind, whose, bytes, number_++}; }

  c10::intrusive_ptr<c10d::Store> store_;  // rank 0 may serve it, and others may still read there
  const int rank_, world_size_;
  const RankTree tree_;
  std::uint32_t number_ = 0;  // of the next collective; all ranks count alike
  std::shared_ptr<Relay> relay_;
};

}  // namespace

std::unique_ptr<Transport> make_tree_transport(const c10::intrusive_ptr<c10d::Store>& store,
                                               const TransportOptions& options) {
  return std::make_unique<TreeTransport>(store, options);
}

}  // namespace fsdp
