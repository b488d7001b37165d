#pragma once

#include <memory>
#include <vector>

#include "tests/system/loop_disk.h"
#include "tests/system/world.h"

namespace test {

/// One musterd whose data folder stands still for a time, as on a file server that fails over, while a training of two
/// ranks runs, and a command ends. Told in steps, so that several may stand still at the same time.
class FrozenSite {
 public:
  static constexpr int kSteps = 100;

  /// `world.data` is set by this. The disk must outlive it.
  FrozenSite(LoopDisk& disk, std::chrono::seconds frozen_for, World::Options world);

  std::chrono::seconds frozen_for() const { return frozen_for_; }
  /// Everything runs, and has done so for some steps.
  void begin();
  void freeze() { disk_.freeze(); }
  /// The command ends with exit code 3, while nobody can write that down.
  void end_command();
  /// Ranks are heard, and people are told what is wrong.
  void expect_heard_and_told();
  void thaw() { disk_.thaw(); }
  /// Nothing was ended, charged or lost, and the command's end is told as it was.
  void expect_unharmed();

 private:
  LoopDisk& disk_;
  const std::chrono::seconds frozen_for_;
  World world_;
  const Thawed thawed_;  // goes first
  std::string training_, command_;
};

/// Disks in a folder of their own.
class LoopDisks {
 public:
  explicit LoopDisks(std::size_t count);
  /// The reason of the first disk that can't be had; empty: all are there.
  std::string why_not() const;
  LoopDisk& operator[](std::size_t index) { return *disks_[index]; }

 private:
  TemporaryFolder folder_;
  std::vector<std::unique_ptr<LoopDisk>> disks_;
};

/// One site on each disk, and a time for each, the longest last. All begin; then all stand still at once.
void stand_still(LoopDisks& disks, const std::vector<std::chrono::seconds>& times, const World::Options& world);

}  // namespace test
