#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace worker {

/// Keeps ranks of an old attempt from writing into the job's checkpoint folder.
///
/// The file FENCE in the folder holds "attempt N\n": the oldest attempt that may still write. The controller raises it
/// under an exclusive flock on FENCE.lock; a rank checks it under a shared one, which it keeps until its commit is
/// visible. So a commit happens entirely before the fence was raised, or not at all. The controller does not wait for
/// ever for a rank that is frozen with its lock: that one looks again when it has published, and withdraws it. Not
/// thread-safe.
class Fence {
 public:
  /// `attempt` is this rank's own; 0 means that there is no controller and no fence.
  Fence(std::filesystem::path folder, std::int64_t attempt);
  ~Fence();
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;

  /// Empty when this attempt may write into the folder, else the reason against. Takes no lock, waits for nobody. Fits
  /// CheckpointOptions::may_write.
  std::string may_write() const;

  /// Empty when this attempt may commit: the lock is held from now until `release`. Else the reason against, and no
  /// lock is held. Fits CheckpointOptions::may_commit.
  std::string may_commit();

  /// Gives the lock back; harmless without one.
  void release();

 private:
  std::filesystem::path folder_;
  std::int64_t attempt_;
  int lock_ = -1;
};

}  // namespace worker
