// Goal: a collective that cannot end ends soon, on all ranks, with an error that names the ranks that differ or are
// gone. A rank that is only late is no error.
// Method: ranks as threads over real sockets, over shared memory, and over a transport that is as deaf as NCCL. The
// timeout is a minute, so each error is the watcher's. The patience of a watcher is some milliseconds.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <mutex>
#include <optional>
#include <sstream>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <utility>

#include "fsdp/comm/sockets/connect.h"
#include "fsdp/comm/watch/watcher.h"
#include "tests/fsdp/deaf_transport.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/odd_transports.h"
#include "tests/fsdp/rank_threads.h"
#include "tests/fsdp/thread_ranks.h"

namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

enum class Over { kSockets, kSharedMemory, kDeaf };

fsdp::MeshOptions quick() {
  fsdp::MeshOptions options;
  options.timeout = 60s;
  options.watch_patience = 40ms;
  options.late_after = 60s;
  return options;
}

/// Runs `body` on each rank. No rank begins before all are connected, and none is destroyed before all have ended
/// `body`, unless `body` destroys its mesh.
using Mesh = std::optional<fsdp::DeviceMesh>;
void run_watched(int world_size, Over over, const fsdp::MeshOptions& wanted, const std::function<void(Mesh&)>& body) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto meeting = std::make_shared<DeafMeeting>(world_size);
  ThreadGroups groups(60s);  // control over the deaf transport
  std::latch connected(world_size), ended(world_size);
  run_rank_threads(world_size, [&](int rank) {
    fsdp::MeshOptions options = wanted;
    options.shared_memory = over == Over::kSharedMemory;
    Mesh mesh;
    if (over == Over::kDeaf) {
      mesh.emplace(
          rank, world_size,
          [&](const fsdp::MeshGroup& group) -> std::unique_ptr<fsdp::Transport> {
            if (group.axis == "control") return groups.join(group);
            return std::make_unique<DeafTransport>(meeting, /*host_waits=*/true);
          },
          options);
      mesh->watch(store);
    } else {
      mesh.emplace(store, rank, world_size, options);
    }
    connected.arrive_and_wait();
    body(mesh);
    ended.arrive_and_wait();
  });
}

void gather(fsdp::DeviceMesh& mesh, const char* whose) {
  mesh.shard().all_gather_into(at::zeros({4 * mesh.world_size()}), whose)->wait();
}

void reduce(fsdp::DeviceMesh& mesh, const char* whose) {
  mesh.shard().reduce_scatter(at::zeros({4 * mesh.world_size()}), at::zeros({4}), whose)->wait();
}

class WatchedTransports : public ::testing::TestWithParam<Over> {};
std::string name_of(const ::testing::TestParamInfo<Over>& each) {
  return each.param == Over::kSockets ? "Sockets" : each.param == Over::kDeaf ? "Deaf" : "SharedMemory";
}
INSTANTIATE_TEST_SUITE_P(Watcher, WatchedTransports,
                         ::testing::Values(Over::kSockets, Over::kSharedMemory, Over::kDeaf), name_of);

TEST_P(WatchedTransports, NameTheRankThatMakesAnotherCall) {
  run_watched(3, GetParam(), quick(), [](Mesh& mesh) {
    gather(*mesh, "layer 0");
    const auto begin = std::chrono::steady_clock::now();
    const std::string error = error_of([&] {
      if (mesh->rank() == 1) return reduce(*mesh, "layer 2");
      gather(*mesh, "layer 1");
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s);
    // Rank 0 or rank 2 may come a little later than the others find the difference.
    EXPECT_THAT(error, AllOf(HasSubstr("the ranks differ in call 1 of shard: "),
                             HasSubstr(" all-gather of layer 1 (16 bytes a rank)"),
                             HasSubstr("rank 1 calls reduce-scatter of layer 2 (16 bytes a rank)")));
    EXPECT_NE(error_of([&] { gather(*mesh, "layer 1"); }), "no error") << "the failure is final";
  });
}

// A graph repeats collectives that nobody calls.
TEST_P(WatchedTransports, NumberRepeatedCallsAndRepeatNoneAfterAFailure) {
  run_watched(2, GetParam(), quick(), [](Mesh& mesh) {
    mesh->note_calls(true);
    gather(*mesh, "layer 0");
    mesh->note_calls(false);
    const auto once = mesh->shard().traffic();
    for (int i = 0; i < 3; ++i) mesh->repeat_calls();
    EXPECT_EQ(mesh->shard().traffic().gathered_bytes, 4 * once.gathered_bytes);
    EXPECT_THAT(error_of([&] {
                  if (mesh->rank() == 1) return reduce(*mesh, "layer 1");
                  gather(*mesh, "layer 1");
                }),
                HasSubstr("the ranks differ in call 4 of shard: "));
    EXPECT_THAT(error_of([&] { mesh->repeat_calls(); }), HasSubstr("the ranks differ in call 4 of shard: "));
  });
}

TEST_P(WatchedTransports, NameARankThatHasLeft) {
  run_watched(3, GetParam(), quick(), [](Mesh& mesh) {
    gather(*mesh, "layer 0");
    if (mesh->rank() == 1) return mesh.reset();
    EXPECT_THAT(
        error_of([&] { gather(*mesh, "layer 1"); }),
        HasSubstr("rank 1 is gone: its mesh was destroyed; it is missing in call 1 of shard, all-gather of layer "
                  "1 (16 bytes a rank)"));
  });
}

TEST_P(WatchedTransports, WaitForARankThatIsLateAndSayItsName) {
  std::latch told(2);
  std::mutex mutex;
  std::vector<std::string> texts;
  fsdp::MeshOptions options = quick();
  options.late_after = 50ms;
  std::atomic<int> ranks = 0;
  thread_local static bool has_told = false;
  options.on_late = [&](const std::string& text) {
    if (text.find(" in call ") == std::string::npos) return;  // on a busy machine, of the meeting
    const std::lock_guard<std::mutex> lock(mutex);
    texts.push_back(text);
    if (!std::exchange(has_told, true)) told.count_down();  // once on each of the two that wait
  };
  run_watched(3, GetParam(), options, [&](Mesh& mesh) {
    gather(*mesh, "layer 0");
    if (mesh->rank() == 2) told.wait();
    gather(*mesh, "layer 1");
    ++ranks;
  });
  EXPECT_EQ(ranks, 3);
  ASSERT_GE(texts.size(), 2U);
  for (const std::string& text : texts)
    EXPECT_THAT(text, AllOf(HasSubstr("in call 1 of shard, all-gather of layer 1 (16 bytes a rank): "),
                            HasSubstr("rank 2 has not come for "),
                            HasSubstr("(its last one is all-gather of layer 0 (16 bytes a rank)")));
}

// Rank 0 hears late of a collective that rank 1 has completed before it left.
TEST(Watcher, ARankThatLeftAfterACallIsNotMissingInIt) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto meeting = std::make_shared<DeafMeeting>(2);
  ThreadGroups groups(60s);
  std::latch left(1);
  run_rank_threads(2, [&](int rank) {
    Mesh mesh;
    mesh.emplace(
        rank, 2,
        [&](const fsdp::MeshGroup& group) -> std::unique_ptr<fsdp::Transport> {
          if (group.axis == "control") return groups.join(group);
          auto deaf = std::make_unique<DeafTransport>(meeting, /*host_waits=*/true);
          return std::make_unique<WatchedTransport>(std::move(deaf), [&, rank](const std::string& what) {
            if (rank != 0 || what != "the wait for the all-gather of layer 1") return;
            left.wait();
            std::this_thread::sleep_for(200ms);  // long enough for a watcher to err
          });
        },
        quick());
    mesh->watch(store);
    gather(*mesh, "layer 1");
    mesh.reset();
    if (rank == 1) left.count_down();
  });
}

/// The transport of NCCL: the host does not wait, and blocks where it reads a number of the device.
TEST(Watcher, EndsWhatADeviceWaitsFor) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto meeting = std::make_shared<DeafMeeting>(2);
  ThreadGroups groups(60s);
  std::latch ended(2);
  run_rank_threads(2, [&](int rank) {
    DeafTransport* device = nullptr;
    fsdp::DeviceMesh mesh(
        rank, 2,
        [&](const fsdp::MeshGroup& group) -> std::unique_ptr<fsdp::Transport> {
          if (group.axis == "control") return groups.join(group);
          auto transport = std::make_unique<DeafTransport>(meeting, /*host_waits=*/false);
          device = transport.get();
          return transport;
        },
        quick());
    mesh.watch(store);
    gather(mesh, "layer 0");
    device->synchronize();
    // The two differ in their order. Both hosts run ahead of their devices.
    gather(mesh, rank == 0 ? "layer 1" : "layer 2");
    reduce(mesh, "layer 1");
    if (rank == 0) gather(mesh, "layer 3");
    if (rank == 1) reduce(mesh, "layer 3");
    device->synchronize();
    EXPECT_THAT(error_of([&] { gather(mesh, "layer 4"); }),
                HasSubstr("the ranks differ in call 1 of shard: rank 0 calls all-gather of layer 1 (16 bytes a rank); "
                          "rank 1 calls all-gather of layer 2"));
    EXPECT_EQ(mesh.shard().traffic().waited.count(), 0) << "the host has not waited";
    ended.arrive_and_wait();
  });
}

/// Connects to rank 0's watcher and says that it is rank 1, without the secret. Returns when rank 0 has hung up.
void come_as_a_stranger(c10d::Store& store) {
  const auto bytes = store.get("watcher");
  std::istringstream card(std::string(bytes.begin(), bytes.end()));
  std::string secret, port, host;
  card >> secret >> port >> host;
  const base::Fd socket = fsdp::net::connect_to(host, port, 20s);
  const timeval patience{.tv_sec = 5, .tv_usec = 0};
  ASSERT_EQ(::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
  const std::string hello = R"({"rank":1,"secret":"guessed","who":"a stranger"})"
                            "\n";
  ASSERT_EQ(::send(socket.get(), hello.data(), hello.size(), MSG_NOSIGNAL), static_cast<ssize_t>(hello.size()));
  char byte = 0;
  EXPECT_EQ(::recv(socket.get(), &byte, 1, 0), 0) << "rank 0 takes the stranger for a rank";
}

TEST(Watcher, SaysWhereALateRankStands) {
  fsdp::MeshOptions options = quick();
  options.timeout = 2s;
  run_watched(2, Over::kSockets, options, [](Mesh& mesh) {
    const std::string error = error_of([&] {
      if (mesh->rank() == 1) return mesh->control().barrier();
      gather(*mesh, "layer 0");
    });
    if (mesh->rank() == 1) return;
    EXPECT_THAT(error, AllOf(HasSubstr("timed out after 2000 ms"), HasSubstr("rank 1 has not come for "),
                             HasSubstr("it stands in call 0 of control, barrier (0 bytes a rank)")));
  });
}

TEST(Watcher, AStrangerIsNoRank) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::latch ended(2);
  run_rank_threads(2, [&](int rank) {
    if (rank == 1) come_as_a_stranger(*store);
    fsdp::watch::WatchOptions options;
    options.patience = 40ms;
    options.timeout = 20s;
    const fsdp::watch::Watcher watcher(*store, rank, 2, options);
    ended.arrive_and_wait();
    EXPECT_EQ(watcher.verdict(), "");
  });
}

TEST(Watcher, NamesAUnitWhoseNameIsLongAndNotAscii) {
  std::string name = "n";
  for (int i = 0; i < 30; ++i) name += "\u5c64";
  run_watched(2, Over::kSockets, quick(), [&](Mesh& mesh) {
    const std::string error = error_of([&] {
      if (mesh->rank() == 1) return reduce(*mesh, name.c_str());
      gather(*mesh, name.c_str());
    });
    EXPECT_THAT(error, AllOf(HasSubstr("the ranks differ in call 0 of shard: "),
                             HasSubstr("rank 1 calls reduce-scatter of n\u5c64\u5c64")));
  });
}

TEST(Watcher, NamesAGroupOfSeveralAxes) {
  fsdp::MeshOptions options = quick();
  options.axes = {{"replicate", 2}, {"shard", 2}};
  run_watched(4, Over::kSockets, options, [](Mesh& mesh) {
    fsdp::Communicator& ranks = *mesh->replicate();
    const std::string error = error_of([&] {
      // Ranks 1 and 3 are a group. Ranks 0 and 2 wait for all four.
      if (mesh->rank() % 2 == 0) return mesh->control().barrier();
      ranks.start_all_reduce(at::zeros({mesh->rank() == 1 ? 2 : 3}), "layer 0")->wait();
    });
    EXPECT_THAT(error, HasSubstr("the ranks differ in call 0 of replicate from rank 1 on: rank 1 calls all-reduce of "
                                 "layer 0 (8 bytes a rank); rank 3 calls all-reduce of layer 0 (12 bytes a rank)"));
  });
}

TEST(Watcher, IsNotNeeded) {
  fsdp::MeshOptions options = quick();
  options.watch_patience = 0ms;
  options.timeout = 300ms;
  run_watched(2, Over::kSockets, options, [](Mesh& mesh) {
    const std::string error = error_of([&] { gather(*mesh, mesh->rank() == 0 ? "layer 1" : "layer 2"); });
    EXPECT_THAT(error, AllOf(HasSubstr("all-gather of layer "), Not(HasSubstr("the ranks differ"))));
  });
}

}  // namespace
