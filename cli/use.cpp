#include "cli/use.h"

#include <algorithm>
#include <cstdio>

#include "cli/cli_text.h"

namespace cli {
namespace {

using muster::v1::Rank;

std::string bytes_or_dash(std::int64_t bytes) {
  return bytes > 0 ? bytes_text(bytes) : "-";
}

std::string fixed_text(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

}  // namespace

std::string cores_text(const Rank& rank) {
  if (!rank.use().has_cores()) return "-";
  const auto cores = rank.use().cores();
  return fixed_text(cores, cores < 10 ? 2 : 1);
}

std::string memory_text(const Rank& rank) {
  return bytes_or_dash(rank.use().has_memory_bytes() ? rank.use().memory_bytes() : rank.memory_bytes());
}

std::string memory_peak_text(const Rank& rank) {
  return bytes_or_dash(std::max(rank.use().memory_peak_bytes(), rank.memory_peak_bytes()));
}

std::string gpu_text(const Rank& rank) {
  return rank.use().has_gpu_percent() ? fixed_text(rank.use().gpu_percent(), 0) : "-";
}

std::string gpu_memory_text(const Rank& rank) {
  return rank.use().has_gpu_memory_bytes() ? bytes_text(rank.use().gpu_memory_bytes()) : "-";
}

std::string gpus_text(const Rank& rank) {
  return or_dash(rank.gpus());
}

bool has_gpu(const Rank& rank) {
  return rank.use().has_gpu_percent() || rank.use().has_gpu_memory_bytes();
}

}  // namespace cli
