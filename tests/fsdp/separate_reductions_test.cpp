// Goal: gathers and reductions of gradients may have a communicator each, and the training stays the same.
// Method: transports that note what they are asked for, and the small model over every transport.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <set>

#include "tests/fsdp/error_of.h"
#include "tests/fsdp/odd_transports.h"
#include "tests/fsdp/ranks.h"
#include "tests/fsdp/small_model.h"
#include "tests/fsdp/thread_ranks.h"

namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

using State = std::map<std::string, at::Tensor>;

State trained(fsdp::DeviceMesh& mesh) {
  Trainer trainer(mesh);
  for (int step = 0; step < 4; ++step) trainer.step(step);
  return trainer.sharded.gather_full_state();
}

void expect_same_state(const State& got, const State& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, tensor] : want) EXPECT_TRUE(at::equal(got.at(name), tensor)) << name;
}

fsdp::MeshOptions separate(std::vector<fsdp::MeshAxis> axes = {}) {
  fsdp::MeshOptions options;
  options.axes = std::move(axes);
  options.separate_reductions = true;
  options.timeout = std::chrono::seconds(30);
  return options;
}

TEST(SeparateReductions, GoToTheirOwnTransportAndGathersToTheirs) {
  for (const bool hybrid : {false, true}) {
    std::mutex mutex;
    std::map<std::string, std::set<std::string>> kinds;  // by axis
    const auto decorate = [&](std::unique_ptr<fsdp::Transport> inner, const fsdp::MeshGroup& group) {
      const auto note = [&, axis = group.axis](const std::string& what) {
        const std::string start = "the start of the ";
        if (!what.starts_with(start)) return;
        const std::lock_guard<std::mutex> lock(mutex);
        kinds[axis].insert(what.substr(start.size(), what.find(" of ", start.size()) - start.size()));
      };
      return std::unique_ptr<fsdp::Transport>(std::make_unique<WatchedTransport>(std::move(inner), note));
    };
    const std::vector<fsdp::MeshAxis> axes =
        hybrid ? std::vector<fsdp::MeshAxis>{{"replicate", 2}, {"shard", 2}} : std::vector<fsdp::MeshAxis>{};
    run_thread_ranks(
        4,
        [](fsdp::DeviceMesh& mesh) {
          EXPECT_NE(&mesh.reduce(), &mesh.shard());
          EXPECT_EQ(mesh.reduce().world_size(), mesh.shard().world_size());
          EXPECT_EQ(mesh.reduce().rank(), mesh.shard().rank());
          trained(mesh);
        },
        std::chrono::seconds(20), separate(axes), decorate);
    EXPECT_THAT(kinds["shard"], UnorderedElementsAre("all-gather"));
    EXPECT_THAT(kinds["reduce"], UnorderedElementsAre("reduce-scatter"));
    if (hybrid) {
      EXPECT_THAT(kinds["replicate"], UnorderedElementsAre("all-reduce"));
    }
  }
}

TEST(SeparateReductions, ChangeNeitherABitNorTheBytesThatAreSent) {
  std::vector<State> states(2);
  std::vector<std::int64_t> bytes(2);
  run_thread_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    const auto rank = static_cast<std::size_t>(mesh.rank());
    states[rank] = trained(mesh);
    bytes[rank] = mesh.wire_bytes();
  });
  run_thread_ranks(
      2,
      [&](fsdp::DeviceMesh& mesh) {
        const auto rank = static_cast<std::size_t>(mesh.rank());
        expect_same_state(trained(mesh), states[rank]);
        EXPECT_EQ(mesh.wire_bytes(), bytes[rank]);
        EXPECT_GT(mesh.reduce().wire_bytes(), 0);
      },
      std::chrono::seconds(20), separate());
}

TEST(SeparateReductions, TrainTheSameOverSocketsAndSharedMemory) {
  State want;
  run_thread_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    State state = trained(mesh);
    if (mesh.rank() == 0) want = std::move(state);
  });
  for (const bool shared_memory : {false, true}) {
    fsdp::MeshOptions options = separate();
    options.shared_memory = shared_memory;
    run_ranks(2, options, [&](fsdp::DeviceMesh& mesh) {
      EXPECT_NE(&mesh.reduce(), &mesh.shard());
      expect_same_state(trained(mesh), want);
    });
  }
}

TEST(SeparateReductions, AreNotMadeUnlessAskedForOnTheCpu) {
  run_ranks(2, [](fsdp::DeviceMesh& mesh) { EXPECT_EQ(&mesh.reduce(), &mesh.shard()); });
  run_thread_ranks(2, [](fsdp::DeviceMesh& mesh) { EXPECT_EQ(&mesh.reduce(), &mesh.shard()); });
  run_thread_ranks(
      1, [](fsdp::DeviceMesh& mesh) { EXPECT_EQ(&mesh.reduce(), &mesh.shard()); }, std::chrono::seconds(20),
      separate());
}

TEST(SeparateReductions, MayBeRefusedByTheTransports) {
  ThreadGroups groups(std::chrono::seconds(20));
  run_rank_threads(2, [&](int rank) {
    const auto make = [&](const fsdp::MeshGroup& group) {
      return group.axis == "reduce" ? nullptr : groups.join(group);
    };
    fsdp::DeviceMesh mesh(rank, 2, make, separate());
    EXPECT_EQ(&mesh.reduce(), &mesh.shard());
    EXPECT_FALSE(trained(mesh).empty());
  });
}

TEST(SeparateReductions, TakeTheNameOfTheirAxis) {
  fsdp::MeshOptions options;
  options.axes = {{"reduce", 2}};
  EXPECT_THAT(error_of([&] { fsdp::DeviceMesh({}, 0, 2, options); }),
              HasSubstr("axis reduce: want another name for each axis, and none \"control\", \"reduce\""));
}

}  // namespace
