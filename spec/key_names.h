#pragma once

/// Keys of a job file that messages of other folders name. Their rows are in spec/jobfile/job_keys.cpp.
namespace spec::key {

inline constexpr const char* kCpusOfRank = "resources.cpus_per_rank";
inline constexpr const char* kGpusOfRank = "resources.gpus_per_rank";

}  // namespace spec::key
