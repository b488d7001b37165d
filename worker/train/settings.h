#pragma once

#include <string>
#include <vector>

#include "fsdp/text/json.h"
#include "worker/train/config.h"

namespace worker {

/// Writes the value of each key of a run, as people write it, into the member "extra" of a checkpoint. The batch size
/// is the one that was derived. So a resume can say what is set otherwise.
void save_settings(const RunConfig& config, const BatchSplit& split, fsdp::Json& extra);

/// What this run sets otherwise than the run that saved a checkpoint: "train.batch_size = 32 (16 until then)". Empty
/// for checkpoints that do not record settings. A key that the saving program may not have had counts only with another
/// value than its default.
std::vector<std::string> changed_settings(const RunConfig& config, const BatchSplit& split, const fsdp::Json& extra);

/// The same in one text, with commas between.
std::string changes_text(const RunConfig& config, const BatchSplit& split, const fsdp::Json& extra);

}  // namespace worker
