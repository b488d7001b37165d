#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "controller/core/job.h"

namespace executors {

struct Unfit;

/// A GPU of musterd's own machine, or a part of one (MIG), as a program can be given it.
struct OwnGpu {
  std::uint32_t number = 0;  // for people: the driver's, else what --local-gpus says, else the place in that list
  std::string id;            // as CUDA_VISIBLE_DEVICES names it: "GPU-5b1b...", "MIG-..."
  std::string name = {};     // of its kind; empty: not known
  core::GpuIdentity known = {};
  bool is_part() const { return id.starts_with("MIG-"); }
  bool operator==(const OwnGpu&) const = default;
};

/// Tells whether two names mean the same GPU, or one that is a part of the other. kUnknown: they may.
enum class Overlap { kNone, kUnknown, kSame };
/// Pure. UUIDs decide where both are known, else numbers. A name counts for what it tells: "0" is a number, "GPU-5b1b"
/// the beginning of a UUID.
Overlap overlap(const std::string& name, const core::GpuIdentity& known, const std::string& other_name,
                const core::GpuIdentity& other_known);
/// The identity of a GPU as far as its name alone tells it.
core::GpuIdentity identity_by_name(const std::string& name);

/// The resources that attempts on musterd's own machine share.
struct OwnMachine {
  std::string name = {};  // the host's
  std::vector<OwnGpu> gpus = {};
  std::string gpus_from = {};    // where that list is from, or why it is empty; for people
  std::string gpus_remedy = {};  // what would make it longer
  std::string problem = {};      // why jobs get no GPU though the machine has some, with the remedy; empty: they do
  std::uint32_t cores = 0;       // that jobs may ask for; 0: cores are not counted
  /// `gpus` is empty, and yet there are some, or nobody knows: a rank that is given none sees none. Otherwise ranks see
  /// what musterd itself may see where `gpus` is empty.
  bool hides_gpus = false;
  /// There are GPUs that the driver does not list now: jobs wait for them, and musterd asks again.
  bool is_unsure = false;
  bool operator==(const OwnMachine&) const = default;
};

/// The resources that a job asks of musterd's own machine.
struct MachineWish {
  std::uint32_t ranks = 1;
  std::uint32_t cpus_of_rank = 0;  // 0: not said, so its cores are not counted
  std::uint32_t gpus_of_rank = 0;
  bool chooses_gpus = false;  // its own CUDA_VISIBLE_DEVICES says which GPUs it uses, so muster gives it none
};

/// The resources that an attempt must be given before it starts.
struct MachineNeed {
  std::uint32_t gpus = 0;
  std::uint32_t cores = 0;
  bool whole_gpus = false;  // a rank wants several, and a process can use one part of a GPU at most
  bool empty() const { return gpus == 0 && cores == 0; }
  bool takes(const OwnGpu& gpu) const { return !whole_gpus || !gpu.is_part(); }
  bool operator==(const MachineNeed&) const = default;
};

/// True if a job's own variables say which GPUs it uses. `env`: a map by name.
template <typename Variables>
bool chooses_gpus(const Variables& env) {
  return env.find("CUDA_VISIBLE_DEVICES") != env.end();
}
/// Pure.
MachineNeed need_of(const OwnMachine& machine, const MachineWish& wish);
/// How many of the machine's GPUs such a job could ever get.
std::uint32_t most_gpus(const OwnMachine& machine, const MachineNeed& need);
/// The parts of a wish that the machine can never give, each with its remedy. Pure.
std::vector<Unfit> unfit_for(const OwnMachine& machine, const MachineWish& wish);

}  // namespace executors
