#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/fd.h"

namespace worker {

/// Keeps ranks of an old attempt from writing into the job's checkpoint folder.
///
/// The file FENCE in the folder holds "job J attempt N\n": the folder is job J's, and attempt N is its oldest one that
/// may still write. The controller raises N under an exclusive flock on FENCE.lock. A rank checks N under a shared
/// flock and keeps that lock until its commit is visible. So a commit either happens entirely before N was raised, or
/// not at all. A rank may be frozen while it holds the lock. The controller does not wait for such a rank for ever. The
/// rank checks N again after it has published its checkpoint, and withdraws the checkpoint if N was raised. Not
/// thread-safe.
class Fence {
 public:
  /// `job` and `attempt` are those of this rank. Attempt 0 means that there is no controller and no fence.
  Fence(std::filesystem::path folder, std::int64_t job, std::int64_t attempt);

  /// Empty when this attempt may write into the folder, otherwise the reason against it. Takes no lock and does not
  /// block. Fits CheckpointOptions::may_write.
  std::string may_write() const;

  /// Empty when this attempt may commit; the shared lock is then held until `release`. Otherwise the reason against it,
  /// with no lock held. Fits CheckpointOptions::may_commit.
  std::string may_commit();

  /// Releases the lock, if held.
  void release() { lock_.reset(); }

 private:
  std::filesystem::path folder_;
  std::int64_t job_;
  std::int64_t attempt_;
  base::Fd lock_;
};

}  // namespace worker
