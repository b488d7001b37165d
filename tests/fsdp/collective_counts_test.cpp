// Goal: a step starts the collectives, and sends the bytes, of the table in docs/engine.md: for each strategy, number
// of micro-batches and prefetch depth, with activations recomputed or not. Method: transports that write down what they
// are given. The theory below knows the model's parameters and the table, and nothing of the engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>

#include "fsdp/engine/recompute.h"
#include "tests/fsdp/small_model.h"
#include "tests/fsdp/thread_ranks.h"

namespace {

constexpr int kRanks = 4, kBlocks = 3;

/// Collectives of one axis, and the bytes that a rank sends for them.
struct Traffic {
  std::int64_t gathers = 0, reductions = 0, sums = 0, others = 0, bytes = 0;

  void gather(std::int64_t whole, int ranks) {
    ++gathers;
    bytes += whole / ranks * (ranks - 1);
  }
  void reduce(std::int64_t whole, int ranks) {
    ++reductions;
    bytes += whole / ranks * (ranks - 1);
  }
  void sum(std::int64_t whole, int ranks) {
    ++sums;
    bytes += 2 * whole * (ranks - 1) / ranks;
  }
  bool operator==(const Traffic&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Traffic& t) {
  return out << t.gathers << " all-gathers, " << t.reductions << " reduce-scatters, " << t.sums << " all-reduces, "
             << t.others << " others, " << t.bytes << " bytes";
}

using TrafficOfAxes = std::map<std::string, Traffic>;

std::int64_t total(const TrafficOfAxes& traffic) {
  std::int64_t bytes = 0;
  for (const auto& [axis, of_axis] : traffic) bytes += of_axis.bytes;
  return bytes;
}

class CountedTransport : public fsdp::Transport {
 public:
  CountedTransport(std::unique_ptr<fsdp::Transport> inner, int ranks, Traffic& traffic)
      : inner_(std::move(inner)), ranks_(ranks), traffic_(traffic) {}

  std::unique_ptr<fsdp::Pending> all_gather_into(const at::Tensor& buffer, std::string_view whose) override {
    traffic_.gather(static_cast<std::int64_t>(buffer.nbytes()), ranks_);
    return inner_->all_gather_into(buffer, whose);
  }
  std::unique_ptr<fsdp::Pending> reduce_scatter(const at::Tensor& input, const at::Tensor& output,
                                                std::string_view whose) override {
    traffic_.reduce(static_cast<std::int64_t>(input.nbytes()), ranks_);
    return inner_->reduce_scatter(input, output, whose);
  }
  std::unique_ptr<fsdp::Pending> start_all_reduce(const at::Tensor& tensor, std::string_view whose) override {
    traffic_.sum(static_cast<std::int64_t>(tensor.nbytes()), ranks_);
    return inner_->start_all_reduce(tensor, whose);
  }
  void all_reduce(at::Tensor& tensor, fsdp::Reduction reduction) override {
    ++traffic_.others;
    inner_->all_reduce(tensor, reduction);
  }
  void broadcast(at::Tensor& tensor, int root) override {
    ++traffic_.others;
    inner_->broadcast(tensor, root);
  }
  void barrier() override {
    ++traffic_.others;
    inner_->barrier();
  }

 private:
  std::unique_ptr<fsdp::Transport> inner_;
  int ranks_;
  Traffic& traffic_;
};

/// A row of the table. `gathers` is how often a unit's parameters are gathered in a step of m micro-batches;
/// `root_gathers` the same of the root, which stays gathered from forward to backward.
struct Row {
  const char* name;
  int shards, copies;
  fsdp::ShardOptions options;
  std::function<int(int m)> gathers, root_gathers;
  int neighbours = 0;  // so many ranks gather for backward among themselves
};

std::vector<Row> rows() {
  const auto twice = [](int m) { return 2 * m; };
  const auto each = [](int m) { return m; };
  const auto once = [](int) { return 1; };
  const auto never = [](int) { return 0; };
  fsdp::ShardOptions usual, until_backward, whole_step, after_backward, tight, near;
  until_backward.reshard_after_forward = false;
  whole_step.reshard_after_forward = whole_step.reshard_after_backward = false;
  after_backward.reshard_after_backward = false;
  tight.tight = true;
  near.reshard_to_ranks = 2;
  return {{"full_shard", 4, 1, usual, twice, each},
          {"shard_grad_op", 4, 1, until_backward, each, each},
          {"zero1", 4, 1, whole_step, once, once},
          {"hybrid_shard", 2, 2, usual, twice, each},
          {"no_shard", 1, 4, usual, never, never},
          {"full_shard, kept after backward", 4, 1, after_backward, [](int m) { return m + 1; }, once},
          {"full_shard, tight", 4, 1, tight, twice, each},
          {"full_shard, resharded to 2 ranks", 4, 1, near, each, each, 2}};
}

/// Parameters of a unit that travel together, on each of `shards` ranks: a parameter starts at a multiple of 32
/// elements, and all ranks have equally many times 32.
std::int64_t padded_bytes(const std::vector<at::Tensor>& parameters, int shards) {
  const auto round_up = [](std::int64_t n) { return (n + 31) / 32 * 32; };
  std::int64_t elements = 0;
  for (const at::Tensor& parameter : parameters) elements += round_up(parameter.numel());
  return round_up((elements + shards - 1) / shards) * shards * 4;
}

TrafficOfAxes theory(const Row& row, int micro_batches) {
  TrafficOfAxes want;
  const auto model = make_model();
  int trained = 0;
  const auto add = [&](const std::vector<at::Tensor>& parameters, int gathers, bool is_block) {
    for (const bool trains : {true, false}) {
      std::vector<at::Tensor> together;
      for (const at::Tensor& parameter : parameters)
        if (parameter.requires_grad() == trains) together.push_back(parameter);
      if (together.empty()) continue;
      const std::int64_t bytes = padded_bytes(together, row.shards);
      for (int i = 0; i < gathers; ++i) want["shard"].gather(bytes, row.shards);
      for (int i = 0; i < micro_batches && is_block && row.neighbours > 0; ++i)
        want["post_forward_" + std::to_string(row.neighbours)].gather(bytes, row.neighbours);
      if (!trains) continue;
      trained += static_cast<int>(together.size());
      if (row.shards > 1) want["shard"].reduce(bytes, row.shards);
      if (row.copies > 1) want["replicate"].sum(bytes / row.shards, row.copies);
    }
  };
  for (const auto& block : model->blocks) add(block->parameters(), row.gathers(micro_batches), true);
  add({model->embedding, model->norm}, row.root_gathers(micro_batches), false);
  want["control"].sum(trained, kRanks);  // a byte a parameter: who took part
  return want;
}

/// A trainer that may recompute its blocks.
struct Counted : Trainer {
  Counted(fsdp::DeviceMesh& m, const fsdp::ShardOptions& options, bool recomputes) : Trainer(m, options) {
    for (std::size_t i = 0; i < model->blocks.size() && recomputes; ++i) {
      Block& block = *model->blocks[i];
      block.wrap = [unit = sharded.units()[i], &block](at::Tensor input, const auto& forward) {
        return unit->run(std::move(input), [&](at::Tensor in) {
          const auto part = [forward](std::vector<at::Tensor> list) { return std::vector{forward(list[0])}; };
          return fsdp::recompute({std::move(in)}, part, block)[0];
        });
      };
    }
  }

  /// `synchronised`: every backward reduces, and not the last alone.
  void train(int step, int micro_batches, bool synchronised = false) {
    for (int i = 0; i < micro_batches; ++i) {
      sharded.set_requires_gradient_sync(synchronised || i == micro_batches - 1);
      model->forward(part_of(tokens_of(step + i), mesh.rank(), mesh.world_size())).backward();
    }
    optimizer->step(1e-2);
    sharded.zero_grad();
  }
};

/// Runs `body` on each rank, with what its transports are given.
void count(const Row& row, const std::function<void(fsdp::DeviceMesh&, TrafficOfAxes&)>& body) {
  std::vector<TrafficOfAxes> traffic(kRanks);
  for (auto& of_rank : traffic)
    for (const char* axis : {"shard", "replicate", "control", "post_forward_2"}) of_rank[axis];
  fsdp::MeshOptions options;
  options.axes = {{"replicate", row.copies}, {"shard", row.shards}};
  const auto decorate = [&](std::unique_ptr<fsdp::Transport> inner, const fsdp::MeshGroup& group) {
    // The rank's number: groups of an axis, one after the other, have the ranks in their order. Copies lie apart.
    const int rank =
        group.axis == "replicate" ? group.rank * row.shards + group.number : group.number * group.size + group.rank;
    Traffic& mine = traffic[static_cast<std::size_t>(rank)].at(group.axis);
    return std::unique_ptr<fsdp::Transport>(std::make_unique<CountedTransport>(std::move(inner), group.size, mine));
  };
  run_thread_ranks(
      kRanks, [&](fsdp::DeviceMesh& mesh) { body(mesh, traffic[static_cast<std::size_t>(mesh.rank())]); },
      std::chrono::seconds(20), options, decorate);
}

void clear(TrafficOfAxes& traffic) {
  for (auto& [axis, of_axis] : traffic) of_axis = {};
}

void expect_traffic(TrafficOfAxes& got, const TrafficOfAxes& want) {
  for (const auto& [axis, of_axis] : got) {
    const auto wanted = want.find(axis);
    EXPECT_EQ(of_axis, wanted == want.end() ? Traffic() : wanted->second) << axis;
  }
}

TEST(Collectives, AreThoseOfTheTable) {
  for (const Row& row : rows()) {
    for (const int micro_batches : {1, 2, 3}) {
      const TrafficOfAxes want = theory(row, micro_batches);
      for (const bool recomputes : {false, true}) {
        for (const int depth : {0, 1, 2}) {
          if (depth != 1 && micro_batches != 2) continue;
          fsdp::ShardOptions options = row.options;
          options.prefetch_depth = depth;
          count(row, [&](fsdp::DeviceMesh& mesh, TrafficOfAxes& traffic) {
            SCOPED_TRACE(std::string(row.name) + ", " + std::to_string(micro_batches) + " micro-batches, depth " +
                         std::to_string(depth) + (recomputes ? ", recomputed" : ""));
            Counted trainer(mesh, options, recomputes);
            trainer.train(0, micro_batches);
            for (int step = 1; step < 3; ++step) {
              clear(traffic);
              const std::int64_t before = mesh.wire_bytes();
              trainer.train(step, micro_batches);
              expect_traffic(traffic, want);
              EXPECT_EQ(mesh.wire_bytes() - before, total(want)) << "by the mesh's own account";
            }
          });
        }
      }
    }
  }
}

TEST(Collectives, OfEachBackwardThatReducesAreOneReductionAUnit) {
  for (const Row& row : rows()) {
    count(row, [&](fsdp::DeviceMesh& mesh, TrafficOfAxes& traffic) {
      Counted trainer(mesh, row.options, false);
      trainer.train(0, 3, /*synchronised=*/true);
      clear(traffic);
      trainer.train(1, 3, /*synchronised=*/true);
      EXPECT_EQ(traffic.at("shard").reductions, row.shards > 1 ? 3 * (kBlocks + 1) : 0) << row.name;
      EXPECT_EQ(traffic.at("replicate").sums, row.copies > 1 ? 3 * (kBlocks + 1) : 0) << row.name;
    });
  }
}

TEST(Collectives, OfOneRankAreNone) {
  for (const Row& row : rows()) {
    if (row.neighbours > 0) continue;
    run_thread_ranks(1, [&](fsdp::DeviceMesh& mesh) {
      Counted trainer(mesh, row.options, true);
      for (int step = 0; step < 3; ++step) trainer.train(step, 2);
      EXPECT_EQ(mesh.shard().collectives() + mesh.control().collectives(), 0) << row.name;
      EXPECT_EQ(mesh.wire_bytes(), 0) << row.name;
    });
  }
}

TEST(Collectives, CalledByOneRankSendNothing) {
  run_thread_ranks(1, [](fsdp::DeviceMesh& mesh) {
    fsdp::Communicator& one = mesh.shard();
    const at::Tensor some = at::arange(4, at::kFloat), sum = at::zeros({4});
    at::Tensor same = some.clone();
    one.all_gather_into(some)->wait();
    one.reduce_scatter(some, sum)->wait();
    one.start_all_reduce(some)->wait();
    one.all_reduce(same);
    one.broadcast(same);
    one.barrier();
    EXPECT_TRUE(at::equal(some, at::arange(4, at::kFloat)));
    EXPECT_TRUE(at::equal(sum, some));
    EXPECT_TRUE(at::equal(same, some));
    EXPECT_EQ(one.collectives(), 0);
    EXPECT_EQ(one.wire_bytes(), 0);
  });
}

/// The layout of a decoder's parameters: two layers, then embedding, norm and head.
std::vector<fsdp::UnitLayout> decoder(std::int64_t width, std::int64_t hidden, std::int64_t vocabulary, int ranks) {
  const auto layout = [ranks](const std::vector<std::int64_t>& sizes) {
    std::vector<fsdp::ParameterInfo> parameters;
    for (const std::int64_t size : sizes) parameters.push_back({"", {}, {size}, size, 0, 0});
    return fsdp::UnitLayout(parameters, ranks, 0);
  };
  const std::int64_t square = width * width, wide = width * hidden, table = width * vocabulary;
  const auto layer = layout({width, square, square, square, square, width, wide, wide, wide});
  return {layer, layer, layout({table, width, table})};
}

TEST(Padding, IsAtMostHalfAPercentOfAMillionElements) {
  for (const auto& [width, hidden, vocabulary] :
       std::vector<std::array<std::int64_t, 3>>{{256, 704, 1024}, {251, 677, 1009}, {167, 449, 1013}}) {
    for (const int ranks : {1, 2, 3, 4, 7, 8}) {
      std::int64_t elements = 0, padded = 0;
      for (const auto& layout : decoder(width, hidden, vocabulary, ranks)) {
        elements += layout.numel();
        padded += layout.padded_numel();
      }
      EXPECT_GE(elements, 1'000'000);
      EXPECT_LE(static_cast<double>(padded - elements), 0.005 * static_cast<double>(elements))
          << width << " wide, " << ranks << " ranks";
    }
  }
}

}  // namespace
