#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/maximum.h>
#include <c10/core/Allocator.h>

#include <algorithm>
#include <cstring>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "fsdp/comm/node/node.h"
#include "fsdp/comm/transport.h"

namespace fsdp {
namespace {

using node::Arena;
using node::Call;
using node::Node;

// [Note: memory that peers read] A rank shows its peers where its bytes lie in its shared file, and they read them
// there. Memory of peer_memory() lies in that file, so an all-gather copies each byte once, and a reduce-scatter copies
// none: it adds from where the gradients are. Other tensors are first copied into a block of the file.

constexpr std::int64_t kBroadcastPiece = 8 << 20;  // bytes of the root's memory for a broadcast
constexpr std::int64_t kCopyGrain = 4 << 20;       // bytes for a further thread
constexpr std::int64_t kSumPiece = 32 << 10;       // elements; sums of a few parts stay in the cache

char* start_of(const at::Tensor& tensor) {
  return static_cast<char*>(tensor.mutable_data_ptr());
}

void copy(char* to, const char* from, std::int64_t bytes) {
  at::parallel_for(0, bytes, kCopyGrain, [&](std::int64_t begin, std::int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
  });
}

/// The tree sum of `parts`, which start at these addresses, and are like `output` in size and dtype.
void sum_into(const at::Tensor& output, const std::vector<const char*>& parts) {
  const std::int64_t size = output.element_size();
  const std::vector<bool> may_change(parts.size(), false);
  // A sum of two needs no memory for sums of a few, so it is not cut.
  const std::int64_t piece = parts.size() == 2 ? output.numel() : kSumPiece;
  for (std::int64_t begin = 0; begin < output.numel(); begin += piece) {
    const std::int64_t count = std::min(piece, output.numel() - begin);
    std::vector<at::Tensor> tensors;
    tensors.reserve(parts.size());
    for (const char* part : parts)  // only read
      tensors.push_back(at::from_blob(const_cast<char*>(part) + begin * size, {count}, output.options()));
    tree_sum(tensors, may_change, output.narrow(0, begin, count));
  }
}

/// This rank's memory that peers read in place. Pools keep it, and with it the node, beyond the transport.
class NodeMemory : public PeerMemory {
 public:
  explicit NodeMemory(std::shared_ptr<Node> node) : node_(std::move(node)) {}

  at::Tensor allocate(std::int64_t bytes) override {
    Arena::Block& block = node_->arena().take(bytes);
    const auto report = [bytes](void* start, int sign) {  // LibTorch counts the memory of tensors
      c10::reportMemoryUsageToProfiler(start, sign * bytes, 0, 0, at::kCPU);
    };
    report(block.pages.start(), 1);
    const auto give_back = [node = node_, &block, report](void* start) {
      report(start, -1);
      node->arena().give_back(block);
    };
    return at::from_blob(block.pages.start(), {bytes}, give_back, at::TensorOptions(at::kByte));
  }
  void await_readers(const at::Tensor& memory) override {
    const auto bytes = static_cast<std::int64_t>(memory.nbytes());
    const void* start = memory.const_data_ptr();
    if (auto* block = node_->arena().find(start, bytes)) node_->await_readers(*block, start, bytes);
  }

 private:
  std::shared_ptr<Node> node_;
};

/// This rank in a collective under way. Without finish() the collective still ends for the peers.
class Taking {
 public:
  Taking(std::shared_ptr<Node> node, const Call& call) : node_(std::move(node)), call_(call) {}
  ~Taking() { finish(); }
  Taking(Taking&&) = default;
  Taking& operator=(Taking&&) = delete;

  /// Calls `use` for each peer with its bytes, beginning with the rank before this one.
  template <typename Use>
  void for_each_peer(const Use& use) const {
    const int n = node_->world_size();
    for (int i = 1; i < n; ++i) {
      const int peer = (node_->rank() - i + n) % n;
      use(peer, node_->data_of(peer, call_));
    }
  }
  /// The bytes of all ranks: `own`, and what peers have posted from byte `offset` on.
  std::vector<const char*> parts(const char* own, std::int64_t offset) const {
    std::vector<const char*> all(node_->world_size(), own);
    for_each_peer([&](int peer, const char* data) { all[peer] = data + offset; });
    return all;
  }
  /// Once only: later the post may be that of another call.
  void finish() {
    if (const auto node = std::exchange(node_, nullptr)) node->finish(call_);
  }

  Node& node() const { return *node_; }
  const Call& call() const { return call_; }

 private:
  std::shared_ptr<Node> node_;
  Call call_;
};

/// Lets the peers read a copy of `data` until all have finished the call.
void show_copy(Node& node, const Call& call, const char* data, std::int64_t bytes) {
  Arena::Block& block = node.arena().take(bytes);
  copy(block.pages.start(), data, bytes);
  node.post(call, &block, block.pages.start(), bytes);
  node.arena().give_back(block);
}

/// Sums all of a tensor on every rank, in two rounds: each rank sums its share, and then all ranks gather the shares.
void sum_in_shares(const at::Tensor& tensor, const Taking& sum, Taking& gather) {
  Node& node = sum.node();
  const at::Tensor own = share_of(tensor, node.rank(), node.world_size());
  sum_into(own, sum.parts(start_of(own), start_of(own) - start_of(tensor)));
  show_copy(node, gather.call(), start_of(own), static_cast<std::int64_t>(own.nbytes()));
  gather.for_each_peer([&](int peer, const char* data) {
    const at::Tensor theirs = share_of(tensor, peer, node.world_size());
    copy(start_of(theirs), data, static_cast<std::int64_t>(theirs.nbytes()));
  });
  gather.finish();
}

class NodeTransport : public Transport {
 public:
  NodeTransport(std::unique_ptr<Node> node, c10::intrusive_ptr<c10d::Store> store)
      : node_(std::move(node)), memory_(std::make_shared<NodeMemory>(node_)), store_(std::move(store)) {}
  ~NodeTransport() override { node_->leave("its mesh was destroyed"); }

  std::unique_ptr<Pending> all_gather_into(const at::Tensor& buffer, std::string_view whose) override {
    const std::int64_t chunk = static_cast<std::int64_t>(buffer.nbytes()) / node_->world_size();
    const Call call = node_->next("all-gather", whose, chunk);
    show(call, start_of(buffer) + node_->rank() * chunk, chunk);
    return under_way(call, [buffer, chunk](const Taking& taking) {
      taking.for_each_peer([&](int peer, const char* data) { copy(start_of(buffer) + peer * chunk, data, chunk); });
    });
  }

  std::unique_ptr<Pending> reduce_scatter(const at::Tensor& input, const at::Tensor& output,
                                          std::string_view whose) override {
    const auto bytes = static_cast<std::int64_t>(output.nbytes()), offset = node_->rank() * bytes;
    const Call call = node_->next("reduce-scatter", whose, bytes);
    show(call, start_of(input), static_cast<std::int64_t>(input.nbytes()));
    return under_way(call, [input, output, offset](const Taking& taking) {
      sum_into(output, taking.parts(start_of(input) + offset, offset));
    });
  }

  std::unique_ptr<Pending> start_all_reduce(const at::Tensor& tensor, std::string_view whose) override {
    const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
    const Call call = node_->next("all-reduce", whose, bytes);
    if (node_->world_size() == 2 || bytes <= kSentWhole) {
      show_copy(*node_, call, start_of(tensor), bytes);  // the tensor itself is about to change
      return under_way(call, [tensor](const Taking& taking) { sum_into(tensor, taking.parts(start_of(tensor), 0)); });
    }
    const Call second = node_->next("all-reduce's gather", whose, bytes);
    show_copy(*node_, call, start_of(tensor), bytes);
    return under_way(call, [tensor, gather = Taking(node_, second)](const Taking& taking) mutable {
      sum_in_shares(tensor, taking, gather);
    });
  }

  void all_reduce(at::Tensor& tensor, Reduction reduction) override {
    const at::Tensor flat = tensor.view({-1});
    if (reduction == Reduction::kSum) return start_all_reduce(flat, {})->wait();
    const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
    const Call call = node_->next("all-reduce's maximum", {}, bytes);
    show_copy(*node_, call, start_of(flat), bytes);
    under_way(call, [&](const Taking& taking) {
      at::Tensor largest = flat;
      for (const char* part : taking.parts(start_of(flat), 0))  // only read
        at::maximum_out(largest, flat, at::from_blob(const_cast<char*>(part), flat.sizes(), flat.options()));
    })->wait();
  }

  void broadcast(at::Tensor& tensor, int root) override {
    const std::string whose = "rank " + std::to_string(root);
    const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
    for (std::int64_t begin = 0; begin < bytes; begin += kBroadcastPiece)
      broadcast_piece(start_of(tensor) + begin, std::min(kBroadcastPiece, bytes - begin), root, whose);
  }

  void barrier() override {
    const Call call = node_->next("barrier", {}, 0);
    node_->post(call);
    for (int peer = 0; peer < node_->world_size(); ++peer)
      if (peer != node_->rank()) node_->data_of(peer, call);
    node_->finish(call);
  }

  std::shared_ptr<PeerMemory> peer_memory() override { return memory_; }

  void trim() override { node_->arena().trim(); }
  void abort(const std::string& why) override { node_->interrupt(why); }

 private:
  template <typename Complete>
  std::unique_ptr<Pending> under_way(const Call& call, Complete complete) {
    return make_pending([taking = Taking(node_, call), complete = std::move(complete)]() mutable {
      const at::NoGradGuard no_grad;
      complete(taking);
      taking.finish();
    });
  }

  /// Lets the peers read `data` until all have finished the call.
  void show(const Call& call, const char* data, std::int64_t bytes) {
    if (auto* block = node_->arena().find(data, bytes)) return node_->post(call, block, data, bytes);
    show_copy(*node_, call, data, bytes);
  }

  /// All ranks wait for all, so that a dead peer or another call is told to the root too.
  void broadcast_piece(char* data, std::int64_t bytes, int root, std::string_view whose) {
    const Call call = node_->next("broadcast", whose, bytes);
    if (root == node_->rank()) {
      show_copy(*node_, call, data, bytes);
    } else {
      node_->post(call);
    }
    for (int peer = 0; peer < node_->world_size(); ++peer) {
      if (peer == node_->rank()) continue;
      const char* theirs = node_->data_of(peer, call);
      if (peer == root) copy(data, theirs, bytes);
    }
    node_->finish(call);
  }

  std::shared_ptr<Node> node_;
  std::shared_ptr<NodeMemory> memory_;
  c10::intrusive_ptr<c10d::Store> store_;  // rank 0 may serve it, and others may still read there
};

}  // namespace

std::unique_ptr<Transport> make_shared_memory_transport(const c10::intrusive_ptr<c10d::Store>& store,
                                                        const TransportOptions& options) {
  std::unique_ptr<Node> node = node::meet(store, options);
  if (!node) return nullptr;
  return std::make_unique<NodeTransport>(std::move(node), store);
}

}  // namespace fsdp
