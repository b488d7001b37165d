#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/protocol/files.h"
#include "base/gpus.h"

namespace agent::use {

/// A rank whose program is looked at.
struct Rank {
  std::uint32_t number = 0;
  std::int64_t pid = 0;
  std::optional<std::string> visible_devices;  // its CUDA_VISIBLE_DEVICES
};

struct SamplerOptions {
  /// Between two looks: after the first, and at most.
  std::chrono::milliseconds first_pause{1'000}, longest_pause{5'000};
  std::filesystem::path proc = "/proc";
  std::function<std::unique_ptr<base::Gpus>()> open_gpus = [] { return base::open_nvml(); };
};

/// Looks at what ranks use, from time to time: one pass over /proc for all of them.
///
/// A thread of its own looks at processes, and a second one asks the GPUs. Neither is waited for, since the kernel and
/// a driver can take for ever: who owns the sampler asks for what is there. A GPU that does not answer any more is left
/// out of later samples. Calls come from one thread.
class Sampler {
 public:
  /// Throws std::system_error if no thread can be started.
  Sampler(std::vector<Rank> ranks, SamplerOptions options = {});
  /// Waits for a look that is under way, at most kPatience.
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;
  static constexpr std::chrono::milliseconds kPatience{100};

  /// Readable when there is a newer sample.
  int fd() const;
  /// The newest sample of each rank that has not ended. Not fd() is readable then.
  std::map<std::uint32_t, protocol::RankUse> newest();
  /// The rank's program has ended: its process id may be another's soon.
  void ended(std::uint32_t rank);

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace agent::use
