#pragma once

#include <string>
#include <vector>

#include "agent/rank/environment.h"
#include "worker/train/recipe.h"
#include "worker/train/train_config.h"

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
  const spec::Exports exports_;
  const std::string owner_;
  std::vector<std::string> told_;
};

/// The file of a claim on an export folder or file, beside it.
std::string export_claim_file(const std::string& target);

/// Refuses train.export_folder and train.full_state_file before the first step where they could not be written at the
/// end. Throws base::UsageError. Not collective.
void check_export(const RunConfig& config);

/// Writes the trained model as train.export_folder and train.full_state_file ask, and returns a line for people of
/// each. `owner` says who exports. Writing them again replaces them. Collective. Throws the same error on all ranks
/// when one cannot be written: c10::Error or std::runtime_error.
///
/// The full state is what PyTorch's FSDP calls FULL_STATE_DICT with offload_to_cpu and rank0_only: rank 0's host holds
/// the whole model in fp32, and then writes one file of it. The export holds one unit at a time.
std::vector<std::string> export_trained(const RunConfig& config, Recipe& recipe, Parts& parts,
                                        const std::string& owner);

/// Who has written that train.full_state_file. Empty: not known, or there is none.
std::string full_state_origin(const std::string& path);

/// True if the run writes anything at its end but checkpoints.
bool exports_anything(const RunConfig& config);

}  // namespace worker
