#pragma once

#include <cstdint>

namespace spec {

inline constexpr double kMostExact = 9007199254740992;  // 2^53: whole numbers that JSON carries exactly
inline constexpr double kMostCount = 4294967295;        // the most steps of a training
inline constexpr double kMostSize = 16'777'216;         // the largest batch, and the largest axis of a model
inline constexpr double kByteVocabulary = 257;          // 256 bytes and the end of a text

/// The most jobs of one sweep. They have one number after the other.
inline constexpr std::int64_t kMostSweepJobs = 10'000;

}  // namespace spec
