#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace agent::environment {

/// Which devices a rank sees when it is given `gpus_per_rank`: its slice of 0, 1, 2, ..., or of `allowed`, a list as
/// CUDA_VISIBLE_DEVICES has it ("4,5"; empty: not limited). Nothing if the list is too short.
std::optional<std::string> visible_devices(const std::string& allowed, std::uint32_t gpus_per_rank,
                                           std::uint32_t local_rank);

}  // namespace agent::environment
