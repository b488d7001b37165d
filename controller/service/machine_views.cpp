#include "controller/service/machine_views.h"

#include <algorithm>

#include "controller/core/text.h"

namespace service {
namespace {

bool has_share(const core::Attempt& attempt) {
  return attempt.share && attempt.state != core::AttemptState::kEnded;
}

}  // namespace

void fill_share(const core::Attempt& attempt, muster::v1::Attempt& out) {
  out.clear_gpus();
  if (!has_share(attempt)) return;
  for (const auto& gpu : attempt.share->gpus) out.add_gpus(gpu);
  out.set_cores(attempt.share->cores);
}

std::string gpus_of_rank(const core::Attempt& attempt, core::RankNumber rank, const executors::OwnMachine& machine) {
  if (!has_share(attempt) || attempt.ranks.empty()) return {};
  const auto& gpus = attempt.share->gpus;
  const auto each = gpus.size() / attempt.ranks.size();
  std::string text;
  for (auto i = rank * each; i < (rank + 1) * each; ++i) {
    const auto known = std::ranges::find(machine.gpus, gpus[i], &executors::OwnGpu::id);
    const bool by_number = known != machine.gpus.end() && !known->is_part();
    text += (text.empty() ? "" : ",") + (by_number ? std::to_string(known->number) : gpus[i]);
  }
  return text;
}

std::string gpu_note(const muster::v1::JobSpec& spec, const executors::OwnMachine& machine) {
  if (machine.gpus.empty() && !machine.hides_gpus) return {};
  const auto chosen = spec.env().find("CUDA_VISIBLE_DEVICES");
  if (chosen != spec.env().end()) {
    const bool sees_none = chosen->second.empty() || chosen->second == "-1";
    return sees_none
               ? ""
               : "Its own CUDA_VISIBLE_DEVICES chooses GPUs, so muster gives it none: other jobs may use the same. "
                 "Leave the variable out, and set gpus_per_rank, to have GPUs alone";
  }
  if (spec.resources().gpus_per_rank() > 0) return {};
  const auto which = machine.gpus.empty() ? "GPUs" : core::count_text(machine.gpus.size(), "GPU");
  return "It asks for no GPU, so it sees none of the " + which +
         " of this machine: set gpus_per_rank, if it is to use one";
}

}  // namespace service
