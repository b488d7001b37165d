// Goal: a manifest whose bytes have changed in any way is refused by name, and never loaded as if it were right. A
// manifest of a later format is told from a damaged one, and is not passed over.
// Method: real checkpoints of the small model, of which the tests change byte after byte.
#include <gmock/gmock.h>

#include <fstream>

#include "fsdp/files/checkpoint_manifest.h"
#include "tests/fsdp/checkpoint_fixture.h"
#include "tests/fsdp/error_of.h"

namespace {

using fsdp::Checkpointer;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;
namespace fs = std::filesystem;

class CheckpointManifest : public Checkpoint {
 protected:
  fs::path manifest(std::int64_t step) const { return step_path(step) / "manifest.json"; }
  std::string text(std::int64_t step) const { return test::read_file(manifest(step)); }
  void write(std::int64_t step, const std::string& changed) const {
    fs::remove(manifest(step));  // ext4 writes a file to disk at once that replaces its own bytes
    std::ofstream(manifest(step), std::ios::binary) << changed;
  }
  /// True if the only checkpoint of the folder is refused, and named.
  bool is_refused() const {
    const fsdp::CheckpointList list = fsdp::list_checkpoints(options().folder);
    return list.valid.empty() && list.too_new.empty() && list.ignored.size() == 1 &&
           list.ignored[0].starts_with("step-00000001: ") && list.ignored[0].size() > 20;
  }
};

TEST_F(CheckpointManifest, IsRefusedWhicheverByteOfItChanges) {
  save_steps(1, {1});
  const std::string whole = text(1);
  std::size_t changes = 0;
  const auto expect_refused = [&](std::size_t at, char byte) {
    if (byte == whole[at]) return;
    std::string changed = whole;
    changed[at] = byte;
    write(1, changed);
    EXPECT_TRUE(is_refused()) << "byte " << at << ", \"" << whole[at] << "\" became \"" << byte << "\" in "
                              << whole.substr(at < 20 ? 0 : at - 20, 40);
    ++changes;
  };
  for (std::size_t at = 0; at < whole.size(); ++at) {
    expect_refused(at, static_cast<char>(whole[at] ^ (1 << at % 8)));
    expect_refused(at, ' ');
    if (std::isdigit(static_cast<unsigned char>(whole[at])) == 0) continue;
    for (const char digit : {'0', '1', '4', '7', '9'}) expect_refused(at, digit);
  }
  EXPECT_GT(changes, whole.size());
  write(1, whole);
  EXPECT_THAT(fsdp::list_checkpoints(options().folder).valid, SizeIs(1));
}

TEST_F(CheckpointManifest, IsRefusedWhenItIsCutOrGrows) {
  save_steps(1, {1});
  const std::string whole = text(1);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write(1, whole.substr(0, size));
    EXPECT_TRUE(is_refused()) << "cut to " << size << " of " << whole.size() << " bytes";
  }
  for (const char* more : {" ", "\n", "{}", "0"}) {
    write(1, whole + more);
    EXPECT_TRUE(is_refused()) << "with more behind it: " << more;
  }
}

// The digits that trained differently in silence: counts of AdamW, and the place in the data.
TEST_F(CheckpointManifest, OfAChangedDigitIsPassedOverByAllRanksAndNamed) {
  save_steps(2, {1, 2});
  const std::string whole = text(2);
  for (const std::string member : {"\"steps\": ", "\"data_position\": ", "\"learning_rate\": "}) {
    std::string changed = whole;
    char& digit = changed[whole.rfind(member) + member.size()];
    digit = digit == '1' ? '2' : '1';
    write(2, changed);
    for (const int world_size : {1, 2, 3}) {
      const auto [step, ignored] = load(world_size);
      EXPECT_EQ(step, 1) << member;
      EXPECT_THAT(ignored,
                  ElementsAre("step-00000002: manifest.json is corrupt: its checksum is not that of its text"));
    }
  }
}

// A checksum that is taken away must not make a manifest of an earlier version of it.
TEST_F(CheckpointManifest, OfThisVersionHasAChecksum) {
  save_steps(1, {1});
  fsdp::Json object = fsdp::latest_valid(options().folder)->manifest;
  write(1, object.dump());
  EXPECT_THAT(fsdp::list_checkpoints(options().folder).ignored,
              ElementsAre("step-00000001: manifest.json is corrupt: it does not begin with the checksum of its text"));
  EXPECT_EQ(fsdp::Json::parse(text(1)), object);
  write(1, fsdp::summed_text(object));
  EXPECT_EQ(load(1).first, 1);
}

class CheckpointTooNew : public CheckpointManifest {
 protected:
  void raise_version(std::int64_t step) const {
    fsdp::Json object = fsdp::Json::parse(text(step));
    object.as_object().erase(fsdp::kOwnSum);
    object["version"] = object.at("version").as_int() + 1;
    write(step, fsdp::summed_text(object));
  }
  std::string error_of_load(int world_size) const {
    std::string text;
    run_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh, {}, /*seed=*/99);
      const auto before = trainer.sharded.gather_full_state();
      const std::string error =
          error_of([&] { Checkpointer(trainer.sharded, *trainer.optimizer, options()).load_latest(); });
      for (const auto& [name, tensor] : trainer.sharded.gather_full_state())
        EXPECT_TRUE(at::equal(tensor, before.at(name))) << name;
      EXPECT_EQ(mesh.control().broadcast(error), error) << "the same on each rank";
      if (mesh.rank() == 0) text = error;
    });
    return text;
  }
};

TEST_F(CheckpointTooNew, IsToldAndNotPassedOverForAnOlderOne) {
  save_steps(2, {1, 2, 3});
  raise_version(2);
  EXPECT_EQ(load(2).first, 3) << "the newest is of this program";
  raise_version(3);
  const auto told =
      AllOf(StartsWith(step_path(3).native() + " has format version 5, and this program reads versions 1 to 4"),
            HasSubstr("run that program again, or move the folder away"));
  for (const int world_size : {1, 2}) EXPECT_THAT(error_of_load(world_size), told);
  EXPECT_THAT(error_of([&] { fsdp::latest_valid(options().folder); }), told);
  const fsdp::CheckpointList list = fsdp::list_checkpoints(options().folder);
  EXPECT_THAT(list.valid, SizeIs(1));
  EXPECT_THAT(list.too_new, SizeIs(2));
  EXPECT_THAT(list.ignored, IsEmpty());
}

// A damaged checkpoint is passed over, and then the one of the later program is the next.
TEST_F(CheckpointTooNew, IsToldBehindADamagedOne) {
  save_steps(2, {1, 2, 3});
  raise_version(2);
  fs::resize_file(step_path(3) / "rank-00001-of-00002.safetensors", 100);
  EXPECT_THAT(error_of_load(2), StartsWith(step_path(2).native() + " has format version 5"));
}

TEST_F(CheckpointTooNew, IsToldBehindOneWhoseDamageShowsOnlyWhenItIsRead) {
  save_steps(2, {1, 2, 3});
  raise_version(2);
  const fs::path file = step_path(3) / "rank-00001-of-00002.safetensors";
  std::string bytes = test::read_file(file);
  bytes[bytes.size() - 5] ^= 1;
  std::ofstream(file, std::ios::binary) << bytes;
  EXPECT_THAT(error_of_load(2), StartsWith(step_path(2).native() + " has format version 5"));
}

TEST_F(CheckpointTooNew, IsToldThoughThereIsNoOther) {
  save_steps(1, {1});
  raise_version(1);
  EXPECT_THAT(error_of_load(1), StartsWith(step_path(1).native() + " has format version 5"));
}

// It belongs to a program that may come back.
TEST_F(CheckpointTooNew, IsNeverRemovedByASave) {
  save_steps(1, {1, 2, 3});
  raise_version(2);
  run_ranks(1, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    fsdp::CheckpointOptions one = options();
    one.keep = 1;
    Checkpointer checkpointer(trainer.sharded, *trainer.optimizer, one);
    checkpointer.save(state_of(4));
    checkpointer.wait_for_removal();
  });
  EXPECT_THAT(names_in(options().folder), ElementsAre("step-00000002", "step-00000004"));
}

}  // namespace
