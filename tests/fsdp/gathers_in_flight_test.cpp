// Goal: never more units are being gathered at one time than the prefetch depth says, in forward, backward, and steps
// that change their order. Method: a transport counts a unit as in flight from the start of its all-gathers until
// somebody waits for them, which is as long as the slowest network could take.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>

#include "tests/fsdp/odd_transports.h"
#include "tests/fsdp/small_model.h"
#include "tests/fsdp/thread_ranks.h"

namespace {

/// The units whose all-gathers of parameters have been started and not been waited for.
class InFlight {
 public:
  void note(const std::string& what) {
    const std::string start = "the start of the all-gather of ", wait = "the wait for the all-gather of ";
    if (what.starts_with(start)) {
      ++open_[what.substr(start.size())];
      const auto is_open = [](const auto& entry) { return entry.second > 0; };
      most_ = std::max<int>(most_, static_cast<int>(std::count_if(open_.begin(), open_.end(), is_open)));
    } else if (what.starts_with(wait)) {
      --open_[what.substr(wait.size())];
    }
  }
  int take_most() { return std::exchange(most_, 0); }

 private:
  std::map<std::string, int> open_;  // all-gathers by unit: a unit has one for each segment
  int most_ = 0;
};

void watch(int world_size, std::vector<InFlight>& ranks, const std::function<void(fsdp::DeviceMesh&)>& body) {
  const auto decorate = [&](std::unique_ptr<fsdp::Transport> inner, const fsdp::MeshGroup& group) {
    if (group.axis != "shard") return inner;
    const auto note = [&in_flight = ranks[static_cast<std::size_t>(group.rank)]](const std::string& what) {
      in_flight.note(what);
    };
    return std::unique_ptr<fsdp::Transport>(std::make_unique<WatchedTransport>(std::move(inner), note));
  };
  run_thread_ranks(world_size, body, std::chrono::seconds(20), {}, decorate);
}

TEST(GathersInFlight, AreAtMostThePrefetchDepth) {
  for (const int depth : {0, 1, 2, 3, 7}) {
    std::vector<InFlight> ranks(2);
    watch(2, ranks, [&](fsdp::DeviceMesh& mesh) {
      InFlight& mine = ranks[static_cast<std::size_t>(mesh.rank())];
      fsdp::ShardOptions options;
      options.prefetch_depth = depth;
      Trainer trainer(mesh, options);
      const auto all = trainer.model->blocks;
      for (int step = 0; step < 7; ++step) {
        choose_blocks(*trainer.model, all, step);
        trainer.step(step);
        // A unit that nothing gathered ahead is alone in flight, because it is waited for before others are started.
        const int most = mine.take_most();
        EXPECT_LE(most, std::max(depth, 1)) << "step " << step;
        if (step == 4) {
          EXPECT_EQ(most, std::clamp(depth, 1, 3)) << "three blocks lie behind the root";
        }
      }
    });
  }
}

TEST(GathersInFlight, OfBackwardHaveALimitOfTheirOwn) {
  std::vector<InFlight> ranks(2);
  watch(2, ranks, [&](fsdp::DeviceMesh& mesh) {
    InFlight& mine = ranks[static_cast<std::size_t>(mesh.rank())];
    fsdp::ShardOptions options;
    options.prefetch_depth = 1;
    options.backward_prefetch_depth = 2;
    Trainer trainer(mesh, options);
    trainer.step(0);
    const at::Tensor loss = trainer.model->forward(part_of(tokens_of(1), mesh.rank(), mesh.world_size()));
    mine.take_most();
    loss.backward();
    EXPECT_EQ(mine.take_most(), 2);
    trainer.model->forward(part_of(tokens_of(1), mesh.rank(), mesh.world_size()));
    EXPECT_EQ(mine.take_most(), 1);
  });
}

}  // namespace
