#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "muster/v1/job.pb.h"

namespace jobfile {

/// The run file that muster-worker reads, format 1: name, recipe, model, data, train, checkpoint, fsdp. Values that the
/// spec leaves out are left out, except folders. `cache_folder` is used if the spec names none and
/// the recipe has the key.
nlohmann::ordered_json run_file(const muster::v1::JobSpec& spec, const std::string& checkpoint_folder,
                                const std::string& cache_folder);

}  // namespace jobfile
