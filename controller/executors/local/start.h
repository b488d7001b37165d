#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "controller/core/job.h"
#include "controller/executors/executor.h"

namespace executors::local {

/// Hands out TCP ports for MASTER_PORT, one for each attempt that is not over. Ports come from outside the kernel's
/// ephemeral range, so that no connection of another program gets one by chance between choice and use. They come round
/// and round, so that one given back is not used again soon. Thread-safe.
class PortPicker {
 public:
  using Range = std::pair<std::uint16_t, std::uint16_t>;  // first and last

  /// `seed` decides where to begin: several controllers on one machine begin at different places.
  explicit PortPicker(std::uint32_t seed, Range ephemeral = ephemeral_range());

  /// A port that nothing listens on now. Throws std::system_error.
  std::uint16_t take(const core::AttemptKey& key);
  /// An earlier controller chose this port.
  void keep(const core::AttemptKey& key, std::uint16_t port) {
    std::lock_guard lock(mutex_);
    of_[key] = port;
  }
  void give_back(const core::AttemptKey& key) {
    std::lock_guard lock(mutex_);
    of_.erase(key);
  }

  /// /proc/sys/net/ipv4/ip_local_port_range; Linux's default if it cannot be read.
  static Range ephemeral_range();

 private:
  const Range candidates_;
  std::mutex mutex_;
  std::uint32_t next_;
  std::map<core::AttemptKey, std::uint16_t> of_;
};

// The start of an attempt on this machine needs, in order: a check of the request, a port, an agent.

/// A request that can never be started on this machine as it is; what() says which value is wrong and what to do.
struct Impossible : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline constexpr std::uint32_t kMaxRanks = 1024;

/// The GPUs that an attempt may see, as CUDA_VISIBLE_DEVICES has them: those that it was given. Where it was
/// given none, and the machine lists no GPUs and hides none: CUDA_VISIBLE_DEVICES of this process; without that: all.
std::optional<std::string> allowed_devices(const LaunchRequest& request, const OwnMachine& machine);

/// Wishes that local processes can never meet, whatever the machine does: several nodes, Slurm, more GPUs or cores
/// than there are. A job that chooses GPUs by itself needs some in `devices` (/dev).
std::vector<Unfit> unfit_for_local(const LaunchRequest& request, const OwnMachine& machine,
                                   const std::filesystem::path& devices);

/// Looks at everything that can be known before a process is started. Returns the program to execute: argv[0] if it
/// holds a slash, else the first executable of that name in the PATH of the job's env, or of its base environment.
/// Throws Impossible.
std::string check_launch(const LaunchRequest& request);

/// The result of starting an agent.
struct StartAnswer {
  enum class Kind {
    kRunning,  // every rank's program was executed
    kFailed,   // it said why it could not
    kSilent,   // it ended, or was killed at the deadline, without a word; status.jsonl shows how far it came
  };
  Kind kind = Kind::kSilent;
  std::string reason;
  bool retryable = true;
  int no_room = 0;  // the error, if it found no room for its files or no descriptors, and started nothing
};

/// Starts `program` on an attempt's folder, in a session of its own, with the attempt's lock and none of this process's
/// other descriptors, and waits for its word until the deadline, when it is killed. `spawned` is called when it has
/// been started.
StartAnswer start_agent(const std::filesystem::path& program, const std::filesystem::path& folder, base::Fd lock,
                        std::chrono::steady_clock::time_point deadline, const std::function<void()>& spawned);

}  // namespace executors::local
