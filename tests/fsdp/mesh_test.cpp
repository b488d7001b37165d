#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <functional>
#include <vector>

#include "tests/fsdp/error_of.h"
#include "tests/fsdp/ranks.h"

namespace {

using ::testing::HasSubstr;

constexpr bool kSockets = false;

/// Promises of transports hold for each kind: false is sockets, true is shared memory.
class EveryTransport : public ::testing::TestWithParam<bool> {
 protected:
  static void on_ranks(int world_size, const std::function<void(fsdp::DeviceMesh&)>& body,
                       std::chrono::milliseconds timeout = std::chrono::seconds(30),
                       const std::vector<fsdp::MeshAxis>& axes = {}) {
    run_ranks(world_size, body, timeout, c10::kCPU, axes, GetParam());
  }
};
INSTANTIATE_TEST_SUITE_P(Mesh, EveryTransport, ::testing::Bool(),
                         [](const auto& each) { return each.param ? "SharedMemory" : "Sockets"; });

TEST_P(EveryTransport, GathersInPlace) {
  for (const int world_size : kWorldSizes) {
    on_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      const int n = mesh.world_size();
      const at::Tensor buffer = at::zeros({n * 5});
      buffer.narrow(0, mesh.rank() * 5, 5).fill_(mesh.rank() + 1);
      mesh.shard().all_gather_into(buffer)->wait();
      EXPECT_TRUE(at::equal(buffer, at::arange(1, n + 1).repeat_interleave(5).to(at::kFloat)));
      EXPECT_EQ(mesh.wire_bytes(), (n - 1) * 5 * 4);
    });
  }
}

TEST_P(EveryTransport, ReducesAndScattersWithSeveralUnderWay) {
  for (const int world_size : kWorldSizes) {
    on_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      const int n = mesh.world_size();
      std::vector<at::Tensor> inputs, outputs;
      std::vector<std::unique_ptr<fsdp::Pending>> pending;
      for (int i = 0; i < 4; ++i) {
        inputs.push_back(at::arange(n * 3).to(at::kFloat) * (mesh.rank() + 1) + i);
        outputs.push_back(at::empty({3}));
        pending.push_back(mesh.shard().reduce_scatter(inputs[i], outputs[i]));
      }
      for (int i = 3; i >= 0; --i) {
        pending[i]->wait();
        const at::Tensor want = (at::arange(n * 3) * (n * (n + 1) / 2) + n * i).narrow(0, mesh.rank() * 3, 3);
        EXPECT_TRUE(at::equal(outputs[i], want.to(at::kFloat)));
      }
    });
  }
}

/// The sum in the order that Communicator promises.
at::Tensor tree(const std::function<at::Tensor(int)>& part, int begin, int end) {
  if (end - begin == 1) return part(begin);
  const int middle = begin + (end - begin + 1) / 2;
  return tree(part, begin, middle) + tree(part, middle, end);
}

/// Values whose sum has other bits in another order.
at::Tensor odd_values(int rank, std::int64_t count) {
  return (at::arange(count).to(at::kFloat) * 0.37F + 1.0F / (rank + 3)).sin() * (rank == 1 ? 1e4F : 1.0F);
}

TEST_P(EveryTransport, SumsInTheOrderOfATree) {
  for (const int world_size : {1, 2, 3, 4, 5}) {
    on_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      const int n = mesh.world_size(), rank = mesh.rank();
      // The last is sent in two rounds, in parts of unlike sizes.
      for (const std::int64_t count : {1, 7, 9001}) {
        const at::Tensor want = tree([&](int r) { return odd_values(r, n * count); }, 0, n);
        const at::Tensor input = odd_values(rank, n * count), output = at::empty({count});
        mesh.shard().reduce_scatter(input, output)->wait();
        EXPECT_TRUE(at::equal(output, want.narrow(0, rank * count, count))) << count;
        const at::Tensor first = odd_values(rank, n * count), second = odd_values(rank, n * count);
        const auto one = mesh.shard().start_all_reduce(first), two = mesh.shard().start_all_reduce(second);
        one->wait();
        two->wait();
        EXPECT_TRUE(at::equal(first, want)) << count;
        EXPECT_TRUE(at::equal(second, want)) << count;
        at::Tensor third = odd_values(rank, n * count);
        mesh.shard().all_reduce(third);
        EXPECT_TRUE(at::equal(third, want)) << count;
      }
    });
  }
}

TEST_P(EveryTransport, SharesNumbersTextAndOutcomes) {
  for (const int world_size : kWorldSizes) {
    on_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      const int n = mesh.world_size();
      fsdp::Communicator& ranks = mesh.shard();
      EXPECT_EQ(ranks.all_reduce(mesh.rank() + 0.5), n * (n - 1) / 2 + n * 0.5);
      EXPECT_EQ(ranks.all_reduce(mesh.rank() * 1.0, fsdp::Reduction::kMax), n - 1);
      EXPECT_EQ(ranks.broadcast(mesh.rank() == n - 1 ? std::string("from the last") : std::string(), n - 1),
                "from the last");
      EXPECT_EQ(ranks.broadcast(std::string()), "");
      ranks.barrier();
      EXPECT_EQ(ranks.agree(""), "");
      EXPECT_EQ(ranks.agree(mesh.rank() == n - 1 ? "disk full" : ""), "rank " + std::to_string(n - 1) + ": disk full");
      EXPECT_EQ(ranks.agree("rank's own"), "rank 0: rank's own");
    });
  }
}

TEST(Mesh, NamesItsAxes) {
  run_ranks(1, [](fsdp::DeviceMesh& mesh) {
    EXPECT_EQ(&mesh.axis("shard"), &mesh.shard());
    EXPECT_THAT(error_of([&] { mesh.axis("replicate"); }), HasSubstr("no axis \"replicate\"; it has: shard"));
  });
}

TEST_P(EveryTransport, GroupsRanksAlongItsAxesTheLastFirst) {
  const std::vector<fsdp::MeshAxis> axes{{"replicate", 2}, {"shard", 3}};
  on_ranks(
      6,
      [](fsdp::DeviceMesh& mesh) {
        EXPECT_EQ(mesh.shard().world_size(), 3);
        EXPECT_EQ(mesh.shard().rank(), mesh.rank() % 3);
        ASSERT_NE(mesh.replicate(), nullptr);
        EXPECT_EQ(mesh.replicate(), &mesh.axis("replicate"));
        EXPECT_EQ(mesh.replicate()->rank(), mesh.rank() / 3);
        EXPECT_EQ(mesh.shard().all_reduce(mesh.rank()), mesh.rank() < 3 ? 0 + 1 + 2 : 3 + 4 + 5);
        EXPECT_EQ(mesh.replicate()->all_reduce(mesh.rank()), mesh.rank() % 3 * 2 + 3);
        EXPECT_EQ(mesh.control().all_reduce(mesh.rank()), 15);
        EXPECT_EQ(mesh.control().agree(mesh.rank() == 4 ? "no disk" : ""), "rank 4: no disk");
        EXPECT_TRUE(mesh.control().device().is_cpu());
      },
      std::chrono::seconds(30), axes);
}

TEST(Mesh, WithoutAnAxisToShardAlongHasOneOfOneRank) {
  run_ranks(2,
            [](fsdp::DeviceMesh& mesh) {
              EXPECT_EQ(mesh.shard().world_size(), 1);
              EXPECT_EQ(mesh.replicate()->world_size(), 2);
            },
            std::chrono::seconds(30), c10::kCPU, {{"replicate", 2}});
}

TEST(Mesh, RefusesAxesThatDoNotFit) {
  const auto error = [](const std::vector<fsdp::MeshAxis>& axes) {
    fsdp::MeshOptions options;
    options.axes = axes;
    return error_of([&] { fsdp::DeviceMesh({}, 0, 4, options); });
  };
  EXPECT_THAT(error({{"replicate", 2}, {"shard", 3}}), HasSubstr("replicate 2 x shard 3 is 6 ranks, and there are 4"));
  EXPECT_THAT(error({{"shard", 2}, {"shard", 2}}), HasSubstr("axis shard: want another name"));
  EXPECT_THAT(error({{"control", 4}}), HasSubstr("axis control: want another name"));
  EXPECT_THAT(error({{"shard", 0}}), HasSubstr("axis shard of 0 ranks: want 1 or more"));
}

TEST(Mesh, RefusesWhatItCannotServe) {
  EXPECT_THAT(error_of([] { fsdp::DeviceMesh({}, 2, 2); }), HasSubstr("rank 2 in a world of 2"));
  EXPECT_THAT(error_of([] { fsdp::DeviceMesh({}, 0, 2); }), HasSubstr("need a rendezvous store"));
#ifndef MUSTER_WITH_CUDA
  fsdp::MeshOptions options;
  options.device = c10::Device(c10::kCUDA, 0);
  EXPECT_THAT(error_of([&] { fsdp::DeviceMesh({}, 0, 1, options); }), HasSubstr("build with MUSTER_WITH_CUDA"));
#endif
}

TEST_P(EveryTransport, ADeadPeerIsAnErrorThatNamesIt) {
  on_ranks(
      2,
      [](fsdp::DeviceMesh& mesh) {
        if (mesh.rank() == 1) return;
        at::Tensor buffer = at::zeros({8});
        at::Tensor part = at::zeros({4});
        // The first all-gather may begin before the rank notices the dead peer. Later calls fail at once.
        for (int i = 0; i < 2; ++i)
          EXPECT_THAT(error_of([&] { mesh.shard().all_gather_into(buffer)->wait(); }),
                      HasSubstr("all-gather on rank 0 with rank 1 failed"));
        EXPECT_THAT(error_of([&] { mesh.shard().reduce_scatter(buffer, part)->wait(); }),
                    HasSubstr("reduce-scatter on rank 0 with rank 1 failed"));
      },
      std::chrono::seconds(2));
}

// A rank that calls another unit, another collective or another size at the same point gets no bytes.
TEST_P(EveryTransport, RefusesAnotherCallOfAPeer) {
  using Call = std::function<void(fsdp::Communicator&)>;
  const auto gather = [](std::int64_t numel, const char* whose) -> Call {
    return [=](fsdp::Communicator& ranks) { ranks.all_gather_into(at::zeros({numel}), whose)->wait(); };
  };
  const Call reduce = [](fsdp::Communicator& ranks) {
    ranks.reduce_scatter(at::zeros({8}), at::zeros({4}), "layer 1")->wait();
  };
  for (const Call& other : {gather(8, "layer 2"), gather(12, "layer 1"), reduce}) {
    on_ranks(
        2,
        [&](fsdp::DeviceMesh& mesh) {
          const Call& mine = mesh.rank() == 0 ? gather(8, "layer 1") : other;
          const std::string error = error_of([&] { mine(mesh.shard()); });
          const std::string peer = std::to_string(1 - mesh.rank());
          EXPECT_THAT(error, HasSubstr(" with rank " + peer + " failed (did it die, or does it call another unit"));
          EXPECT_THAT(error, HasSubstr("layer "));
        },
        std::chrono::seconds(1));
  }
}

TEST(Mesh, AWriteToADeadPeerDoesNotEndTheProcess) {
  ::signal(SIGPIPE, SIG_DFL);
  run_ranks(
      2,
      [](fsdp::DeviceMesh& mesh) {
        if (mesh.rank() == 1) return;
        at::Tensor buffer = at::zeros({8});
        EXPECT_NE(error_of([&] {
                    for (int i = 0; i < 3; ++i) mesh.control().broadcast(buffer);
                    mesh.shard().all_gather_into(buffer)->wait();
                  }),
                  "no error");
      },
      std::chrono::seconds(30), c10::kCPU, {}, kSockets);
}

TEST(Store, ServesAFreePortThatOtherRanksConnectTo) {
  fsdp::ListeningStore server = fsdp::listen_store("127.0.0.1");
  ASSERT_GT(server.port, 0);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      auto store = rank == 0 ? server.store : fsdp::connect_store("127.0.0.1", server.port);
      fsdp::DeviceMesh mesh(store, rank, 2);
      EXPECT_EQ(mesh.shard().all_reduce(rank + 1.0), 3.0);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Store, RefusesATakenPortAndAForeignHost) {
  const fsdp::ListeningStore server = fsdp::listen_store("127.0.0.1");
  const std::string taken = error_of([&] { fsdp::listen_store("127.0.0.1", server.port); });
  EXPECT_THAT(taken, HasSubstr("127.0.0.1:" + std::to_string(server.port)));
  EXPECT_THAT(taken, HasSubstr("Address already in use"));
  EXPECT_THAT(error_of([] { fsdp::listen_store("192.0.2.1"); }), HasSubstr("192.0.2.1:0"));
}

TEST(Store, SaysWhereItCouldNotConnect) {
  std::uint16_t closed = 0;
  { closed = fsdp::listen_store("127.0.0.1").port; }
  const std::string error = error_of([&] { fsdp::connect_store("127.0.0.1", closed, std::chrono::milliseconds(300)); });
  EXPECT_THAT(error, HasSubstr("127.0.0.1:" + std::to_string(closed) + " not reached within 300 ms"));
}

}  // namespace
