#pragma once

#include <string>

#include "muster/v1/job.pb.h"

namespace cli {

// The resources that a rank uses, as cells of a table; "-": not known.

/// Cores: "0.02", "1.70", "31.5".
std::string cores_text(const muster::v1::Rank& rank);
/// The memory of all its processes. Before the first sample, what the rank has said of itself.
std::string memory_text(const muster::v1::Rank& rank);
std::string memory_peak_text(const muster::v1::Rank& rank);
/// How busy its GPUs are, in percent.
std::string gpu_text(const muster::v1::Rank& rank);
std::string gpu_memory_text(const muster::v1::Rank& rank);
/// The numbers of its GPUs on musterd's own machine.
std::string gpus_text(const muster::v1::Rank& rank);
/// True if the rank has a GPU that says what it does.
bool has_gpu(const muster::v1::Rank& rank);

}  // namespace cli
