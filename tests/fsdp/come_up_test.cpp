// Goal: communicators come up while the mesh is made, all at one time and once, so no step waits for them; what never
// comes up is an error that says who has not come; and what never ends is waited for no longer than its limit.
// Method: transports that come up only together with those of the other groups, or never. Latches, no sleeping.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <condition_variable>
#include <latch>
#include <mutex>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <ATen/ATen.h>
#include "fsdp/comm/bounded.h"
#include "fsdp/comm/nccl/nccl_settings.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/odd_transports.h"
#include "tests/fsdp/ranks.h"
#include "tests/fsdp/thread_ranks.h"

namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// A gate that opens once so many have come. False: they did not come in time.
class Gate {
 public:
  explicit Gate(int wanted) : wanted_(wanted) {}
  bool pass() {
    std::unique_lock<std::mutex> lock(mutex_);
    ++came_;
    changed_.notify_all();
    return changed_.wait_for(lock, 20s, [&] { return came_ >= wanted_; });
  }
  int came() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return came_;
  }

 private:
  const int wanted_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int came_ = 0;
};

/// A transport like NCCL: slow to come up, and its host does not wait.
class SlowTransport : public ThreadTransport {
 public:
  SlowTransport(const std::shared_ptr<Meetings>& meetings, const fsdp::MeshGroup& group, Gate& gate,
                std::vector<std::string>& calls)
      : ThreadTransport(meetings, group.rank, group.size), axis_(group.axis), gate_(gate), calls_(calls) {}
  void connect() override {
    TORCH_CHECK(gate_.pass(), "the other communicators wait for this one");
    is_up_ = true;
  }
  void warm_up() override {
    TORCH_CHECK(is_up_, "warmed up before it was connected");
    calls_.push_back(axis_);
  }
  std::unique_ptr<fsdp::Pending> all_gather_into(const at::Tensor& buffer, std::string_view whose) override {
    EXPECT_TRUE(is_up_) << "a step would wait for " << axis_;
    return ThreadTransport::all_gather_into(buffer, whose);
  }
  bool host_waits() const override { return false; }

 private:
  const std::string axis_;
  Gate& gate_;
  std::vector<std::string>& calls_;
  std::atomic<bool> is_up_ = false;
};

TEST(ComingUp, CommunicatorsOfAMeshComeUpAtOneTimeAndOnceBeforeTheFirstStep) {
  constexpr int kRanks = 4, kGroups = 3;  // replicate, shard and reduce
  Gate gate(kRanks * kGroups);
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Meetings>> meetings;
  std::vector<std::vector<std::string>> calls(kRanks);
  ThreadGroups of_control(20s);
  run_rank_threads(kRanks, [&](int rank) {
    auto& mine = calls[static_cast<std::size_t>(rank)];
    fsdp::MeshOptions options;
    options.axes = {{"replicate", 2}, {"shard", 2}};
    options.separate_reductions = true;
    fsdp::DeviceMesh mesh(
        rank, kRanks,
        [&](const fsdp::MeshGroup& group) -> std::unique_ptr<fsdp::Transport> {
          if (group.axis == "control") return of_control.join(group);
          const std::lock_guard<std::mutex> lock(mutex);
          auto& meeting = meetings[group.axis + std::to_string(group.number)];
          if (!meeting) meeting = std::make_shared<Meetings>(group.size, 20s);
          return std::make_unique<SlowTransport>(meeting, group, gate, mine);
        },
        options);
    EXPECT_THAT(mine, ElementsAre("replicate", "shard", "reduce")) << "first collectives have one order";
    for (int step = 0; step < 2; ++step) mesh.shard().all_gather_into(at::zeros({4}), "unit")->wait();
    EXPECT_EQ(mine.size(), 3U);
  });
  EXPECT_EQ(gate.came(), kRanks * kGroups) << "each once";
}

// Each group meets at its own keys. Made one after the other, rank 0's shard would wait for a rank that makes replicas.
TEST(ComingUp, CommunicatorsOverSocketsMeetAtOneTime) {
  fsdp::MeshOptions options;
  options.shared_memory = false;
  options.axes = {{"replicate", 2}, {"shard", 3}};
  options.separate_reductions = true;
  run_ranks(6, options, [](fsdp::DeviceMesh& mesh) {
    EXPECT_EQ(mesh.shard().links().connections, 2);
    EXPECT_EQ(mesh.reduce().links().connections, 2);
    EXPECT_EQ(mesh.replicate()->links().connections, 1);
    EXPECT_LE(mesh.control().links().connections, 3) << "along a tree";
    EXPECT_EQ(mesh.make_control()->all_reduce(1.0), 6);
    mesh.control().barrier();
  });
}

/// A store that keeps one rank's keys of a group from it, as a rank that has not come there.
struct MuteStore : c10d::PrefixStore {
  MuteStore(c10::intrusive_ptr<c10d::Store> store, std::string group)
      : PrefixStore("x", std::move(store)), group_(std::move(group)) {}
  void set(const std::string& key, const std::vector<std::uint8_t>& value) override {
    if (key.find(group_) == std::string::npos) PrefixStore::set(key, value);
  }
  const std::string group_;
};

TEST(ComingUp, AGroupThatARankDoesNotComeToIsAnErrorOnAllOfItsRanks) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  fsdp::MeshOptions options;
  options.shared_memory = false;
  options.timeout = 700ms;
  const auto begin = std::chrono::steady_clock::now();
  run_rank_threads(2, [&](int rank) {
    const auto mine = c10::make_intrusive<MuteStore>(store, rank == 0 ? "shard-0" : "nothing");
    EXPECT_NE(error_of([&] { fsdp::DeviceMesh(mine, rank, 2, options); }), "no error");
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
}

TEST(Bounded, WorkThatEndsIsWaitedForAndItsErrorThrown) {
  bool done = false;
  EXPECT_TRUE(fsdp::run_for_at_most(20s, [&] { done = true; }));
  EXPECT_TRUE(done);
  EXPECT_THAT(error_of([] { fsdp::run_for_at_most(20s, [] { throw std::runtime_error("a peer is gone"); }); }),
              "a peer is gone");
}

TEST(Bounded, WorkThatDoesNotEndIsLeftAlone) {
  const auto release = std::make_shared<std::latch>(1);
  const auto ended = std::make_shared<std::latch>(1);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(fsdp::run_for_at_most(50ms, [release, ended] {
    release->wait();
    ended->count_down();
  }));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  release->count_down();
  ended->wait();
}

TEST(Bounded, WorksThatDoNotEndAreNamedWithWhatIsKnownOfThem) {
  const auto release = std::make_shared<std::latch>(1);
  const auto ended = std::make_shared<std::latch>(1);
  bool gave_up = false;
  const std::string error = error_of([&] {
    fsdp::run_together({{"the communicator of shard", [] {}},
                        {"the communicator of reduce",
                         [release, ended] {
                           release->wait();
                           ended->count_down();
                         },
                         [] { return std::string("ranks 3 and 5 have not come"); }}},
                       {.limit = 100ms, .give_up = [&] { gave_up = true; }});
  });
  EXPECT_THAT(error, AllOf(HasSubstr("not ready after 100 ms: the communicator of reduce: ranks 3 and 5 have not come"),
                           Not(HasSubstr("shard"))));
  EXPECT_TRUE(gave_up);
  release->count_down();
  ended->wait();
}

TEST(Bounded, TheFirstFailureEndsTheWaitAndTheOthersAreAskedToEnd) {
  const auto asked = std::make_shared<std::latch>(1);
  EXPECT_THAT(error_of([&] {
                fsdp::run_together({{"one", [asked] { asked->wait(); }},
                                    {"other", [] { throw std::runtime_error("rank 2 is gone"); }}},
                                   {.limit = 60s, .give_up = [asked] { asked->count_down(); }});
              }),
              "rank 2 is gone");
  const auto end = std::make_shared<std::latch>(1);
  EXPECT_THAT(error_of([&] {
                fsdp::run_together({{"one", [end] { end->wait(); }}},
                                   {.limit = 60s,
                                    .check = [] { TORCH_CHECK(false, "the watcher knows that rank 1 is gone"); },
                                    .give_up = [end] { end->count_down(); }});
              }),
              HasSubstr("the watcher knows that rank 1 is gone"));
}

/// Without these variables for as long as it lives; then as before.
class WithoutVariables {
 public:
  explicit WithoutVariables(const std::vector<fsdp::nccl::Setting>& settings) {
    for (const auto& setting : settings) {
      const char* value = ::getenv(setting.name.c_str());
      before_.emplace_back(setting.name, value == nullptr ? std::nullopt : std::optional<std::string>(value));
      ::unsetenv(setting.name.c_str());
    }
  }
  ~WithoutVariables() {
    for (const auto& [name, value] : before_) {
      ::unsetenv(name.c_str());
      if (value) ::setenv(name.c_str(), value->c_str(), 1);
    }
  }

 private:
  std::vector<std::pair<std::string, std::optional<std::string>>> before_;
};

TEST(NcclSettings, KeepC10dFromEndingTheProcessUnlessTheEnvironmentSaysOtherwise) {
  const auto settings = fsdp::nccl::settings(std::chrono::minutes(10));
  const WithoutVariables without(settings);
  ::setenv("TORCH_NCCL_ENABLE_MONITORING", "1", 1);
  fsdp::nccl::set_where_unset(settings);
  EXPECT_STREQ(::getenv("TORCH_NCCL_ASYNC_ERROR_HANDLING"), "2");
  EXPECT_STREQ(::getenv("TORCH_NCCL_ENABLE_MONITORING"), "1") << "the user's";
  EXPECT_STREQ(::getenv("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"), "1230") << "longer than a collective and an abort";
  EXPECT_STREQ(::getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), "1");
  ::unsetenv("TORCH_NCCL_ENABLE_MONITORING");
  fsdp::nccl::set_where_unset(settings);
  EXPECT_STREQ(::getenv("TORCH_NCCL_ENABLE_MONITORING"), "0");
}

TEST(NcclSettings, LaunchesKeepTheirOrderSinceTheVersionThatCanAndWhereItIsLeftOn) {
  const auto settings = fsdp::nccl::settings(1s);
  const WithoutVariables without(settings);
  EXPECT_FALSE(fsdp::nccl::keeps_launch_order(22809)) << "not asked for";
  fsdp::nccl::set_where_unset(settings);
  EXPECT_TRUE(fsdp::nccl::keeps_launch_order(22809));
  EXPECT_TRUE(fsdp::nccl::keeps_launch_order(22600));
  EXPECT_FALSE(fsdp::nccl::keeps_launch_order(22506));
  ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "0", 1);
  EXPECT_FALSE(fsdp::nccl::keeps_launch_order(22809)) << "the user's";
}

}  // namespace
