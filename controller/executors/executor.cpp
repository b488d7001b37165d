#include "controller/executors/executor.h"

#include <algorithm>

#include "base/numbers.h"
#include "controller/core/core_text.h"
#include "spec/key_names.h"

namespace executors {
namespace {

constexpr const char* kPart = "MIG-";

/// UUIDs may be abbreviated.
bool is_begin(const std::string& one, const std::string& other) {
  return one.starts_with(other) || other.starts_with(one);
}

core::GpuIdentity completed(const std::string& name, core::GpuIdentity known) {
  auto told = identity_by_name(name);
  if (!known.number) known.number = told.number;
  if (known.gpu.empty()) known.gpu = std::move(told.gpu);
  return known;
}

}  // namespace

core::GpuIdentity identity_by_name(const std::string& name) {
  core::GpuIdentity known;
  known.number = base::whole_number<std::uint32_t>(name);
  if (name.starts_with("GPU-")) known.gpu = name;
  return known;
}

Overlap overlap(const std::string& name, const core::GpuIdentity& known, const std::string& other_name,
                const core::GpuIdentity& other_known) {
  const auto told = [](bool same) { return same ? Overlap::kSame : Overlap::kNone; };
  if (name == other_name) return Overlap::kSame;
  if (name.starts_with(kPart) && other_name.starts_with(kPart)) return told(is_begin(name, other_name));
  const auto one = completed(name, known), other = completed(other_name, other_known);
  if (!one.gpu.empty() && !other.gpu.empty()) return told(is_begin(one.gpu, other.gpu));
  if (one.number && other.number) return told(*one.number == *other.number);
  return Overlap::kUnknown;
}

MachineNeed need_of(const OwnMachine& machine, const MachineWish& wish) {
  MachineNeed need;
  if (!wish.chooses_gpus) need.gpus = wish.ranks * wish.gpus_of_rank;
  if (machine.cores > 0) need.cores = wish.ranks * wish.cpus_of_rank;
  need.whole_gpus = need.gpus > 0 && wish.gpus_of_rank > 1;
  return need;
}

std::uint32_t most_gpus(const OwnMachine& machine, const MachineNeed& need) {
  return static_cast<std::uint32_t>(
      std::ranges::count_if(machine.gpus, [&](const auto& gpu) { return need.takes(gpu); }));
}

std::vector<Unfit> unfit_for(const OwnMachine& machine, const MachineWish& wish) {
  std::vector<Unfit> found;
  const auto need = need_of(machine, wish);
  const auto with_ranks = " with its " + core::count_text(wish.ranks, "rank");
  const auto remedy = [&](const std::string& first) {
    return first + ", or run it on Slurm" + (machine.gpus_remedy.empty() ? "" : "; " + machine.gpus_remedy);
  };
  const std::string from = machine.gpus_from.empty() ? "" : " (" + machine.gpus_from + ")";
  const auto most = most_gpus(machine, need);
  const bool lacks = need.gpus > most && !machine.is_unsure;
  if (lacks && machine.gpus.empty()) {
    found.push_back({spec::key::kGpusOfRank, std::to_string(wish.gpus_of_rank),
                     "want 0: this machine has no GPU" + from, remedy("ask for none")});
  } else if (lacks) {
    const auto parts = machine.gpus.size() - most;
    const std::string besides =
        parts == 0 ? ""
                   : ", besides " + core::count_text(parts, "part") + " of GPUs (MIG), of which a rank can use one";
    found.push_back({spec::key::kGpusOfRank, std::to_string(wish.gpus_of_rank),
                     "want fewer: it asks for " + core::count_text(need.gpus, "GPU") + with_ranks +
                         ", and this machine has " + std::to_string(most) + from + besides,
                     remedy("ask for fewer GPUs or ranks")});
  }
  if (need.cores > machine.cores) {
    found.push_back({spec::key::kCpusOfRank, std::to_string(wish.cpus_of_rank),
                     "want fewer: it asks for " + core::count_text(need.cores, "core") + with_ranks +
                         ", and this machine has " + std::to_string(machine.cores),
                     "ask for fewer, or leave the key out: the job's cores are not counted then; or start musterd "
                     "with --local-cores off"});
  }
  return found;
}

std::string stop_word(core::Cause cause) {
  switch (cause) {
    case core::Cause::kPreempted:
      return "preempted";
    case core::Cause::kTimedOut:
      return "time_limit";
    case core::Cause::kRequeued:
      return "requeued";
    case core::Cause::kCancelled:
      return "cancelled";
    // One of the gang is lost, whatever became of it.
    case core::Cause::kFailed:
    case core::Cause::kOutOfMemory:
    case core::Cause::kRankSilent:
    case core::Cause::kRankHung:
    case core::Cause::kNodeFailed:
      return "peer_failed";
    // Another attempt is in its place, or will be.
    case core::Cause::kNone:
    case core::Cause::kCompleted:
    case core::Cause::kControllerLost:
      break;
  }
  return "superseded";
}

bool has_ended(const TaskReport& report) {
  return report.process == TaskReport::Process::kExited || report.process == TaskReport::Process::kStepLost;
}

std::string unreachable_text(const Trouble& trouble) {
  return "unreachable since " + core::utc_text(trouble.since) + ": " + trouble.why;
}

std::string trouble_text(const Trouble& trouble) {
  return "scheduler " + unreachable_text(trouble);
}

std::vector<std::string> kept_off(core::JobId job, const LostNodes& lost) {
  std::vector<std::string> nodes;
  for (const auto& [node, only] : lost) {
    const bool concerns = only == 0 || only == job;
    if (concerns && std::ranges::find(nodes, node) == nodes.end()) nodes.push_back(node);
  }
  return nodes;
}

std::string telling_check(const std::string& check, std::string_view whose) {
  return "trap 'muster_code=$?; if [ $muster_code != 0 ]; then echo \"" + std::string(kUnfitMark) +
         "${SLURMD_NODENAME:-$(uname -n)}" + std::string(whose) + " with exit code $muster_code\" >&2; fi' EXIT\n" +
         check;
}

// The check that goes before it may be the partition's, with a trap of its own: from here on this one counts.
std::string own_check(const std::string& check) {
  return check.empty() ? std::string() : telling_check(check, kOwnCheckMark);
}

}  // namespace executors
