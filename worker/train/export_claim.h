#pragma once

#include <string>
#include <vector>

#include "agent/rank/environment.h"
#include "worker/train/config.h"

namespace worker {

/// Tells jobs that write one train.export_folder, or one train.full_state_file, of each other. The later export
/// replaces the earlier one as a whole, which may be wanted, so that is no error.
///
/// [Note: export claims] A job says at its start that it will export: a small file beside the target holds its name.
/// The export itself holds its name, too. So a job that starts sees whose export is there and who else will write one.
/// A job that ends sees who has come since it started, and removes the file. Files that cannot be read or written are
/// left alone: what is at stake is a note.
///
/// Used on rank 0. Not thread-safe.
class ExportClaims {
 public:
  ExportClaims(const RunConfig& config, const agent::rank::RankEnvironment& environment);

  /// "job 7"; without a controller "the run NAME".
  const std::string& owner() const { return owner_; }
  /// Announces this job's exports. Returns a sentence for each other job that has written or announced one there.
  std::vector<std::string> announce();
  /// Right before the exports: sentences of jobs that announce() has not told.
  std::vector<std::string> news();
  /// After the exports: takes the announcements back.
  void withdraw();

 private:
  std::vector<std::string> others();

  const spec::Exports exports_;
  const std::string owner_;
  std::vector<std::string> told_;
};

/// The file of a claim on an export folder or file, beside it.
std::string export_claim_file(const std::string& target);

}  // namespace worker
