// Goal: an old checkpoint has no checkpoint's name when a save returns, and a removal that fails later is told once.
// Method: files that nobody may remove.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "tests/fsdp/checkpoint_fixture.h"

namespace {

using fsdp::Checkpointer;
using fsdp::CheckpointOptions;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

/// While it lives, nobody may remove the file.
class Immutable {
 public:
  explicit Immutable(const fs::path& file) : fd_(::open(file.c_str(), O_RDONLY | O_CLOEXEC)) { is_set_ = set(true); }
  ~Immutable() {
    if (is_set_) set(false);
    ::close(fd_);
  }
  Immutable(const Immutable&) = delete;
  Immutable& operator=(const Immutable&) = delete;
  bool is_set() const { return is_set_; }

 private:
  bool set(bool on) const {
    int flags = 0;
    if (::ioctl(fd_, FS_IOC_GETFLAGS, &flags) != 0) return false;
    flags = on ? flags | FS_IMMUTABLE_FL : flags & ~FS_IMMUTABLE_FL;
    return ::ioctl(fd_, FS_IOC_SETFLAGS, &flags) == 0;
  }
  int fd_;
  bool is_set_ = false;
};

TEST_F(Checkpoint, TellsLaterWhatCouldNotBeRemoved) {
  run_ranks(1, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    CheckpointOptions one = options();
    one.keep = 1;
    Checkpointer checkpointer(trainer.sharded, *trainer.optimizer, one);
    const auto fails_for = [&](int step) {
      return ElementsAre(HasSubstr(step_path(step).native() + " not removed: "));
    };
    checkpointer.save(state_of(1));
    std::vector<std::unique_ptr<Immutable>> held;
    const auto hold = [&](int step) {
      held.push_back(std::make_unique<Immutable>(step_path(step) / "manifest.json"));
      return held.back()->is_set();
    };
    if (!hold(1)) GTEST_SKIP() << "no immutable files here: this user or this file system has none";
    EXPECT_THAT(checkpointer.save(state_of(2)).warnings, IsEmpty());
    EXPECT_FALSE(fs::exists(step_path(1)));
    EXPECT_THAT(checkpointer.wait_for_removal(), fails_for(1));
    EXPECT_THAT(checkpointer.wait_for_removal(), IsEmpty());
    ASSERT_TRUE(hold(2));
    EXPECT_THAT(checkpointer.save(state_of(3)).warnings, IsEmpty());
    EXPECT_THAT(checkpointer.save(state_of(4)).warnings, fails_for(2));
    ASSERT_TRUE(hold(4));
    EXPECT_THAT(checkpointer.save(state_of(5)).warnings, IsEmpty());
    checkpointer.begin_save(state_of(6));
    EXPECT_THAT(checkpointer.wait().value().warnings, fails_for(4)) << "the thread waits, not the training";
    ASSERT_TRUE(hold(6));
    checkpointer.begin_save(state_of(7));
    EXPECT_THAT(checkpointer.wait().value().warnings, fails_for(6)) << "a save beside the training removes by itself";
  });
}

}  // namespace
