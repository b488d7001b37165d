#pragma once

#include <string>
#include <vector>

#include "worker/train/config.h"
#include "worker/train/recipe.h"

namespace worker {

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

/// Whether the run writes anything at its end but checkpoints.
bool exports_anything(const RunConfig& config);

}  // namespace worker
