#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/maximum.h>
#include <c10/util/Exception.h>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "fsdp/comm/buffer_pool.h"
#include "fsdp/comm/sockets/connect.h"
#include "fsdp/comm/sockets/peer_sockets.h"
#include "fsdp/comm/sockets/topic.h"
#include "fsdp/comm/transport.h"
#include "fsdp/tracing/error_text.h"

namespace fsdp {
namespace {

// [Note: exchange] Every pair of ranks exchanges its parts directly, to and from the engine's own buffers. That sends
// (N-1)/N of the bytes without a copy. The thread of PeerSockets moves the bytes while the rank computes.

/// A send to or a receive from one peer. Either the start or the wait throws when the peer is gone.
class Exchange {
 public:
  template <typename Begin>
  Exchange(const Topic& topic, int rank, int peer, std::shared_ptr<PeerSockets> sockets, const Begin& begin)
      : topic_(topic), rank_(rank), peer_(peer), sockets_(std::move(sockets)) {
    named([&] { transfer_ = begin(); });
  }

  void wait() const {
    named([&] { transfer_->wait(); });
  }

 private:
  template <typename Do>
  void named(const Do& part) const {
    try {
      part();
    } catch (const std::exception& error) {
      TORCH_CHECK(false, topic_.failure(rank_, peer_, error.what()));
    }
  }

  Topic topic_;
  int rank_;
  int peer_;
  std::shared_ptr<PeerSockets> sockets_;
  PeerSockets::Pending transfer_;
};

/// A sum of parts that all ranks have, of which the own one is here and the others are on their way.
class Summing {
 public:
  Summing(int rank, int world_size, at::Tensor own) : parts_(world_size), may_change_(world_size, true) {
    parts_[rank] = std::move(own);
    may_change_[rank] = false;
  }
  void expect(int peer, at::Tensor part, const Exchange& receive) {
    parts_[peer] = std::move(part);
    exchanges_.push_back(receive);
  }
  void send(const Exchange& exchange) { exchanges_.push_back(exchange); }

  /// Waits for everything under way and writes the sum.
  void finish(const at::Tensor& output) {
    const at::NoGradGuard no_grad;
    for (const Exchange& exchange : exchanges_) exchange.wait();
    tree_sum(parts_, may_change_, output);
    parts_.clear();
    exchanges_.clear();
  }

 private:
  std::vector<at::Tensor> parts_;  // by rank
  std::vector<bool> may_change_;
  std::vector<Exchange> exchanges_;
};

class SocketTransport : public Transport {
 public:
  SocketTransport(const c10::intrusive_ptr<c10d::Store>& store, const TransportOptions& options)
      : store_(store), rank_(options.rank), world_size_(options.world_size) {
    const std::string address = net::address_of(options.interface_address);
    try {
      sockets_ = std::make_shared<PeerSockets>(
          *store, PeerGroup{rank_, world_size_, address, options.timeout, options.check_peers});
    } catch (const std::exception& error) {
      TORCH_CHECK(false, "sockets on rank ", rank_, " of ", world_size_, ", address ", address,
                  ": no connection to all ranks: ", text_of(error));
    }
  }

  std::unique_ptr<Pending> all_gather_into(const at::Tensor& buffer, std::string_view whose) override {
    const Topic topic = next("all-gather", whose, static_cast<std::int64_t>(buffer.nbytes()) / world_size_);
    return gather_parts(topic, [&](int rank) { return part(buffer, rank); });
  }

  std::unique_ptr<Pending> reduce_scatter(const at::Tensor& input, const at::Tensor& output,
                                          std::string_view whose) override {
    const Topic topic = next("reduce-scatter", whose, static_cast<std::int64_t>(output.nbytes()));
    Summing sum = exchange_parts(topic, [&](int rank) { return part(input, rank); });
    return make_pending([sum = std::move(sum), output]() mutable { sum.finish(output); });
  }

  /// Each rank sums its share, and then all ranks gather the shares.
  std::unique_ptr<Pending> start_all_reduce(const at::Tensor& tensor, std::string_view whose) override {
    const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
    const Topic topic = next("all-reduce", whose, bytes);
    // Two ranks send as much either way, and little is better sent once than in two rounds.
    if (world_size_ == 2 || bytes <= kSentWhole) {
      Summing sum = exchange_parts(topic, [&](int) { return tensor; });
      return make_pending([sum = std::move(sum), tensor]() mutable { sum.finish(tensor); });
    }
    const Topic second = next("all-reduce's gather", whose, bytes);
    const auto share = [tensor, this](int rank) { return share_of(tensor, rank, world_size_); };
    return make_pending([this, sum = exchange_parts(topic, share), share, second]() mutable {
      sum.finish(share(rank_));
      gather_parts(second, share)->wait();
    });
  }

  void all_reduce(at::Tensor& tensor, Reduction reduction) override {
    const at::Tensor flat = tensor.view({-1});
    if (reduction == Reduction::kSum) return start_all_reduce(flat, {})->wait();
    const at::NoGradGuard no_grad;
    const Topic topic = next("all-reduce's maximum", {}, static_cast<std::int64_t>(tensor.nbytes()));
    const at::Tensor own = flat.clone();  // the tensor itself changes while it is sent
    std::vector<Exchange> sends;
    for (int i = 1; i < world_size_; ++i) sends.push_back(send(topic, own, after(i)));
    const at::Tensor theirs = at::empty_like(flat);
    for (int i = 1; i < world_size_; ++i) {
      receive(topic, theirs, before(i)).wait();
      at::maximum_out(tensor, tensor, theirs.view(tensor.sizes()));
    }
    for (const Exchange& sent : sends) sent.wait();
  }

  /// Over a binomial tree below the root: a rank that has the bytes sends them on to half of those that lack them.
  void broadcast(at::Tensor& tensor, int root) override {
    const std::string whose = "rank " + std::to_string(root);
    const Topic topic = next("broadcast", whose, static_cast<std::int64_t>(tensor.nbytes()));
    const int place = (rank_ - root + world_size_) % world_size_;
    const auto rank_at = [&](int at) { return (at + root) % world_size_; };
    int distance = 1;
    while (distance < world_size_ && (place & distance) == 0) distance *= 2;
    if (place != 0) receive(topic, tensor, rank_at(place - distance)).wait();
    std::vector<Exchange> sends;
    for (distance /= 2; distance > 0; distance /= 2)
      if (place + distance < world_size_) sends.push_back(send(topic, tensor, rank_at(place + distance)));
    for (const Exchange& sent : sends) sent.wait();
  }

  /// In rounds: in round k each rank hears from the rank 2^k before it, and so of the 2^k ranks before that one.
  void barrier() override {
    const Topic topic = next("barrier", {}, 0);
    const at::Tensor nothing = at::empty({0}, at::kByte);
    for (int distance = 1; distance < world_size_; distance *= 2) {
      const Exchange sent = send(topic, nothing, after(distance));
      receive(topic, nothing, before(distance)).wait();
      sent.wait();
    }
  }

  void trim() override { parts_.trim(); }
  void abort(const std::string& why) override { sockets_->abort(why); }
  Links links() const override { return {sockets_->connections(), sockets_->messages_sent()}; }

 private:
  int before(int i) const { return (rank_ - i + world_size_) % world_size_; }
  int after(int i) const { return (rank_ + i) % world_size_; }

  at::Tensor part(const at::Tensor& buffer, int rank) const {
    const std::int64_t chunk = buffer.numel() / world_size_;
    return buffer.narrow(0, rank * chunk, chunk);
  }

  /// Sends each peer the own part and receives the parts of all.
  template <typename Part>
  std::unique_ptr<Pending> gather_parts(const Topic& topic, const Part& part_of) {
    std::vector<Exchange> exchanges;
    for (int i = 1; i < world_size_; ++i) exchanges.push_back(receive(topic, part_of(before(i)), before(i)));
    for (int i = 1; i < world_size_; ++i) exchanges.push_back(send(topic, part_of(rank_), after(i)));
    return make_pending([exchanges = std::move(exchanges)] {
      for (const Exchange& exchange : exchanges) exchange.wait();
    });
  }

  /// Sends each peer its share and receives everybody's parts of the own share.
  template <typename Share>
  Summing exchange_parts(const Topic& topic, const Share& share) {
    const at::Tensor own = share(rank_);
    Summing sum(rank_, world_size_, own);
    for (int i = 1; i < world_size_; ++i) {
      const at::Tensor part = parts_.tensor(own.numel(), own.options());
      sum.expect(before(i), part, receive(topic, part, before(i)));
    }
    for (int i = 1; i < world_size_; ++i) sum.send(send(topic, share(after(i)), after(i)));
    return sum;
  }

  Topic next(const char* kind, std::string_view whose, std::int64_t bytes) { return {kind, whose, bytes, number_++}; }

  Exchange receive(const Topic& topic, const at::Tensor& into, int peer) {
    return {topic, rank_, peer, sockets_, [&] { return sockets_->receive(peer, topic.tag, into); }};
  }

  Exchange send(const Topic& topic, const at::Tensor& from, int peer) {
    return {topic, rank_, peer, sockets_, [&] { return sockets_->send(peer, topic.tag, from); }};
  }

  c10::intrusive_ptr<c10d::Store> store_;  // rank 0 may serve it, and others may still read there
  int rank_;
  int world_size_;
  BufferPool parts_{c10::kCPU};  // received in reduce-scatters
  std::uint32_t number_ = 0;     // of the next collective; all ranks count alike
  std::shared_ptr<PeerSockets> sockets_;
};

}  // namespace

std::unique_ptr<Transport> make_socket_transport(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const TransportOptions& options) {
  return std::make_unique<SocketTransport>(store, options);
}

}  // namespace fsdp
