// Goal: a rank reads and compares only the blocks of a checkpoint that hold what it needs, and damage is named by its
// place. Method: a model whose places in its files are known, small blocks, and files that the tests damage.
#include <gmock/gmock.h>

#include <fstream>

#include "tests/fsdp/checkpoint_fixture.h"
#include "tests/fsdp/error_of.h"

namespace {

using fsdp::Checkpointer;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;
using ::testing::SizeIs;
namespace fs = std::filesystem;

/// One parameter. A rank's file holds its values, then exp_avg, then exp_avg_sq, each as long as the other.
struct OneParameter : torch::nn::Module {
  explicit OneParameter(std::int64_t numel)
      : weight(register_parameter("weight", at::arange(numel, at::kFloat) / static_cast<double>(numel))) {}
  at::Tensor weight;
};

struct Owner {
  Owner(fsdp::DeviceMesh& mesh, std::int64_t numel)
      : module(std::make_shared<OneParameter>(numel)), model(module, mesh) {
    model.fully_shard(module);
    optimizer = std::make_unique<fsdp::AdamW>(model);
  }
  std::shared_ptr<OneParameter> module;
  fsdp::ShardedModel model;
  std::unique_ptr<fsdp::AdamW> optimizer;
};

/// Bytes that this thread has read by system calls.
std::int64_t bytes_read_by_thread() {
  std::ifstream in("/proc/thread-self/io");
  for (std::string word; in >> word;)
    if (std::int64_t bytes = 0; word == "rchar:" && in >> bytes) return bytes;
  return -1;
}

class CheckpointBlocks : public Checkpoint {
 protected:
  static constexpr std::int64_t kBlock = 4096, kNumel = 1 << 16, kEach = 4 * kNumel;

  fsdp::CheckpointOptions small_blocks() const {
    fsdp::CheckpointOptions with = options();
    with.block_bytes = kBlock;
    return with;
  }
  void save(int world_size, std::int64_t step) const {
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      Owner owner(mesh, kNumel);
      Checkpointer(owner.model, *owner.optimizer, small_blocks()).save(state_of(step));
    });
  }
  /// Flips a bit of the file that one rank saved at `step`.
  void damage(std::int64_t step, std::int64_t at) const {
    const fs::path path = step_path(step) / "rank-00000-of-00001.safetensors";
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(at);
    file.put(byte);
  }
};

TEST_F(CheckpointBlocks, AreReadByTheRanksThatNeedThem) {
  save(1, 1);
  for (const int world_size : {1, 4, 7}) {
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      Owner owner(mesh, kNumel);
      Checkpointer checkpointer(owner.model, *owner.optimizer, small_blocks());
      const std::int64_t before = bytes_read_by_thread();
      const auto loaded = checkpointer.load_latest();
      const std::int64_t read = bytes_read_by_thread() - before;
      ASSERT_TRUE(loaded);
      const std::int64_t needs = 3 * kEach / world_size;
      EXPECT_THAT(loaded->bytes_read, AllOf(Ge(2 * needs), Le(2 * needs + 8 * kBlock))) << "of " << 3 * kEach;
      EXPECT_THAT(read, AllOf(Ge(loaded->bytes_read), Le(loaded->bytes_read + 32 * 1024))) << "manifest included";
      EXPECT_TRUE(at::equal(owner.model.gather_full_state().at("weight"), OneParameter(kNumel).weight));
    });
  }
}

TEST_F(CheckpointBlocks, ThatAreDamagedStopOnlyThoseThatNeedThem) {
  save(1, 1);
  save(1, 2);
  const std::int64_t at = kEach + kEach / 2;  // in exp_avg
  damage(2, at);
  const auto place =
      "block " + std::to_string(at / kBlock) + ", bytes " + std::to_string(at / kBlock * kBlock) + " to ";
  EXPECT_THAT(error_of([&] { fsdp::validate(*fsdp::latest_valid(options().folder)); }),
              AllOf(HasSubstr("rank-00000-of-00001.safetensors is corrupt in " + place)));
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Owner owner(mesh, kNumel);
    std::vector<std::string> ignored;
    ASSERT_TRUE(Checkpointer({{"model", owner.model}}, options()).load_latest(&ignored));
    EXPECT_THAT(ignored, SizeIs(0)) << "the weights alone are whole";
    const auto loaded = Checkpointer(owner.model, *owner.optimizer, options()).load_latest(&ignored);
    ASSERT_TRUE(loaded);
    EXPECT_EQ(loaded->state.step, 1);
    EXPECT_THAT(ignored, ElementsAre(AllOf(HasSubstr("step-00000002: rank "), HasSubstr("is corrupt in " + place))));
    fsdp::CheckpointOptions trusting = options();
    trusting.verify_checksums = false;
    EXPECT_EQ(Checkpointer(owner.model, *owner.optimizer, trusting).load_latest()->state.step, 2);
  });
}

TEST_F(CheckpointBlocks, BeginWithAHeaderThatHasAChecksumOfItsOwn) {
  save(1, 1);
  damage(1, 12);  // a letter of a name
  run_ranks(1, [&](fsdp::DeviceMesh& mesh) {
    Owner owner(mesh, kNumel);
    std::vector<std::string> ignored;
    EXPECT_FALSE(Checkpointer(owner.model, *owner.optimizer, options()).load_latest(&ignored));
    EXPECT_THAT(ignored,
                ElementsAre(HasSubstr("rank-00000-of-00001.safetensors is corrupt: the checksum of its header")));
  });
  EXPECT_THAT(error_of([&] { fsdp::validate(*fsdp::latest_valid(options().folder)); }), HasSubstr("of its header"));
}

TEST_F(CheckpointBlocks, AreOf16MiBUnlessSaidOtherwise) {
  constexpr std::int64_t kMuch = 3 << 20;  // two files of 18 MiB and a header
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Owner owner(mesh, kMuch);
    Checkpointer checkpointer(owner.model, *owner.optimizer, options());
    checkpointer.save(state_of(1));
    mesh.control().barrier();
    EXPECT_TRUE(checkpointer.load_latest());
    EXPECT_TRUE(at::equal(owner.model.gather_full_state().at("weight"), OneParameter(kMuch).weight));
  });
  const auto info = fsdp::latest_valid(options().folder);
  for (const fsdp::Json& file : info->manifest.at("files").as_array()) {
    EXPECT_EQ(file.at("block_bytes").as_int(), 16 << 20);
    EXPECT_THAT(file.at("blocks").as_array(), SizeIs(2));
  }
  fsdp::validate(*info);
}

}  // namespace
