#pragma once

#include <cstdint>
#include <filesystem>

namespace agent::program {

/// Makes what must lie on disk before the ranks of an element of an array start: its folders, the raised fence, its run
/// file and its launch file. The batch script calls it once, before its setup lines and before srun, so the fence
/// stands before a rank of this attempt can write, and ranks of an older one are refused from then on.
///
/// `set_file`: protocol::kSetFile, with protocol::kSetLaunchFile beside it. May be repeated. Throws std::runtime_error
/// or std::system_error in words for Slurm's log: also where the attempt is over already, because a later one has
/// raised the fence.
void prepare_element(const std::filesystem::path& set_file, std::uint32_t index,
                     const std::filesystem::path& attempt_folder);

}  // namespace agent::program
