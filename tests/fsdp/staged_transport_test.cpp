// Goal: what goes through the host is what would have gone directly, and the tensors of a collective that failed keep
// their values. Method: ranks as threads, CPU tensors, over the transports that the staged one carries on a GPU node.
// fsdp_streams_test trains over it on a device whose work comes late.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "fsdp/comm/transport.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/odd_transports.h"
#include "tests/fsdp/ranks.h"
#include "tests/fsdp/small_model.h"

namespace {

using ::testing::HasSubstr;

/// Which of the two transports for CPUs a test runs over.
using MakeTransport = decltype(&fsdp::make_socket_transport);
struct Inner {
  const char* name;
  MakeTransport make;
};
constexpr Inner kInner[] = {{"sockets", fsdp::make_socket_transport},
                            {"shared memory", fsdp::make_shared_memory_transport}};

/// A rank's transport with its place among the ranks.
struct Rank {
  int rank, ranks;
  fsdp::Transport& direct;
  fsdp::Transport& staged;
};

/// Runs `body` on each rank, with two transports of the same kind: one as it is, the other staged. `decorate` may put
/// another transport around the one that is staged.
using Around = std::function<std::unique_ptr<fsdp::Transport>(std::unique_ptr<fsdp::Transport>)>;
void run_staged(const Inner& inner, int ranks, const std::function<void(Rank)>& body, const Around& around = {}) {
  ::setenv("TORCH_FR_BUFFER_SIZE", "0", /*replace=*/0);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::latch ended(ranks);
  run_rank_threads(ranks, [&](int rank) {
    SCOPED_TRACE(inner.name);
    const auto connect = [&](const char* prefix) {
      return inner.make(c10::make_intrusive<c10d::PrefixStore>(prefix, store),
                        {rank, ranks, std::chrono::seconds(20), "127.0.0.1"});
    };
    const auto direct = connect("direct");
    auto carried = connect("carried");
    TORCH_CHECK(direct && carried, "no transport");
    if (around) carried = around(std::move(carried));
    const auto staged = fsdp::make_staged_transport(std::move(carried), rank, ranks);
    body({rank, ranks, *direct, *staged});
    ended.arrive_and_wait();
  });
}

/// Values that tell rank and place, and whose sum depends on its order.
at::Tensor values(int rank, std::int64_t size, at::ScalarType dtype = at::kFloat) {
  return (at::arange(size, at::kDouble).add(1 + 10 * rank).div(3)).to(dtype);
}

TEST(StagedTransport, BringsTheBitsOfTheTransportThatItCarries) {
  for (const Inner& inner : kInner) {
    for (const int ranks : {2, 3}) {
      run_staged(inner, ranks, [&](Rank r) {
        for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
          for (const std::int64_t chunk : {std::int64_t{1}, std::int64_t{1000}, std::int64_t{70'001}}) {
            std::vector<at::Tensor> results[2];
            for (const int way : {0, 1}) {
              fsdp::Transport& transport = way == 0 ? r.direct : r.staged;
              auto& out = results[way];
              out.push_back(at::full({chunk * r.ranks}, -1, dtype));
              out[0].narrow(0, r.rank * chunk, chunk).copy_(values(r.rank, chunk, dtype));
              transport.all_gather_into(out[0], "unit")->wait();
              const at::Tensor input = values(r.rank, chunk * r.ranks, dtype), before = input.clone();
              out.push_back(at::full({chunk}, -1, dtype));
              transport.reduce_scatter(input, out[1], "unit")->wait();
              EXPECT_TRUE(at::equal(input, before)) << "what is sent stays as it was";
              out.push_back(values(r.rank, chunk, dtype));
              transport.start_all_reduce(out[2], "unit")->wait();
            }
            for (std::size_t i = 0; i < results[0].size(); ++i)
              EXPECT_TRUE(at::equal(results[0][i], results[1][i])) << "collective " << i << " of " << dtype;
          }
        }
        at::Tensor sum = values(r.rank, 5, at::kDouble), most = values(r.rank, 5, at::kDouble);
        at::Tensor direct_sum = sum.clone(), from_last = values(r.rank, 3);
        r.staged.all_reduce(sum, fsdp::Reduction::kSum);
        r.direct.all_reduce(direct_sum, fsdp::Reduction::kSum);
        EXPECT_TRUE(at::equal(sum, direct_sum));
        r.staged.all_reduce(most, fsdp::Reduction::kMax);
        EXPECT_TRUE(at::equal(most, values(r.ranks - 1, 5, at::kDouble)));
        r.staged.broadcast(from_last, r.ranks - 1);
        EXPECT_TRUE(at::equal(from_last, values(r.ranks - 1, 3)));
        r.staged.barrier();
      });
    }
  }
}

TEST(StagedTransport, ManyMayBeUnderWayAndAreWaitedForInAnyOrder) {
  for (const Inner& inner : kInner) {
    run_staged(inner, 3, [](Rank r) {
      std::vector<at::Tensor> buffers;
      std::vector<std::unique_ptr<fsdp::Pending>> pending;
      for (int i = 0; i < 4; ++i) {
        buffers.push_back(at::full({3 * 500}, -1.0F));
        buffers[i].narrow(0, r.rank * 500, 500).fill_(10 * i + r.rank);
        pending.push_back(r.staged.all_gather_into(buffers[i], "unit"));
      }
      for (int i = 3; i >= 0; --i) {
        pending[i]->wait();
        for (int rank = 0; rank < 3; ++rank)
          EXPECT_TRUE(buffers[i].narrow(0, rank * 500, 500).eq(10 * i + rank).all().item<bool>());
      }
    });
  }
}

/// One collective, started and waited for, with the tensor that it writes.
struct Collective {
  const char* name;
  std::function<std::unique_ptr<fsdp::Pending>(Rank, const at::Tensor&)> start;  // null for those without a wait
};

TEST(StagedTransport, AFailureInsideIsToldAndChangesNoTensor) {
  const Collective kCollectives[] = {
      {"all-gather", [](Rank r, const at::Tensor& t) { return r.staged.all_gather_into(t, "unit"); }},
      {"reduce-scatter",
       [](Rank r, const at::Tensor& t) { return r.staged.reduce_scatter(values(r.rank, 600 * r.ranks), t, "unit"); }},
      {"all-reduce", [](Rank r, const at::Tensor& t) { return r.staged.start_all_reduce(t, "unit"); }},
      {"all-reduce",
       [](Rank r, at::Tensor t) {
         r.staged.all_reduce(t, fsdp::Reduction::kSum);
         return std::unique_ptr<fsdp::Pending>();
       }},
      {"broadcast", [](Rank r, at::Tensor t) {
         r.staged.broadcast(t, 0);
         return std::unique_ptr<fsdp::Pending>();
       }}};
  for (const Collective& collective : kCollectives) {
    // A start may fail, or a wait. Afterwards the next collective works, as each rank failed alike.
    for (const std::string part : {"the start of", "the wait for"}) {
      static thread_local bool fails = false;
      const auto around = [&](std::unique_ptr<fsdp::Transport> inner) {
        return std::make_unique<WatchedTransport>(std::move(inner), [&](const std::string& what) {
          const bool has_parts = what.starts_with("the ");
          if (fails && (!has_parts || what.starts_with(part))) TORCH_CHECK(false, "injected: ", what);
        });
      };
      run_staged(
          kInner[0], 2,
          [&](Rank r) {
            const at::Tensor tensor = values(r.rank, 600), before = tensor.clone();
            fails = true;
            const std::string error = error_of([&] {
              if (const auto pending = collective.start(r, tensor)) pending->wait();
            });
            fails = false;
            EXPECT_THAT(error, HasSubstr(std::string("injected: "))) << collective.name;
            EXPECT_THAT(error, HasSubstr(collective.name));
            EXPECT_TRUE(at::equal(tensor, before)) << part << " " << collective.name;
          },
          around);
    }
  }
}

TEST(StagedTransport, AMeshOverItTrainsTheBitsOfAMeshWithoutIt) {
  for (const int ranks : {2, 3}) {
    std::map<std::string, at::Tensor> states[2];
    for (const int way : {0, 1}) {
      const auto store = c10::make_intrusive<c10d::HashStore>();
      run_rank_threads(ranks, [&](int rank) {
        const auto make = [&](const fsdp::MeshGroup& group) -> std::unique_ptr<fsdp::Transport> {
          const auto keys = c10::make_intrusive<c10d::PrefixStore>(group.axis + std::to_string(group.number), store);
          auto inner =
              fsdp::make_socket_transport(keys, {group.rank, group.size, std::chrono::seconds(20), "127.0.0.1"});
          if (way == 0 || group.axis == "control") return inner;
          return fsdp::make_staged_transport(std::move(inner), group.rank, group.size);
        };
        fsdp::DeviceMesh mesh(rank, ranks, make, {});
        Trainer trainer(mesh);
        for (int step = 0; step < 3; ++step) trainer.step(step);
        auto state = trainer.sharded.gather_full_state();
        if (rank == 0) states[way] = std::move(state);
        mesh.control().barrier();
      });
    }
    ASSERT_FALSE(states[0].empty());
    for (const auto& [name, value] : states[0]) EXPECT_TRUE(at::equal(value, states[1].at(name))) << name;
  }
}

}  // namespace
