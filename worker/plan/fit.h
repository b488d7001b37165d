#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "worker/plan/plan.h"

namespace worker {

/// The memory that one rank may use.
struct Limit {
  std::int64_t bytes = 0;
  bool of_gpu = false;  ///< a GPU holds the tensors, and the host what is offloaded or copied for a checkpoint
  std::string what;     ///< where the number comes from: "GPU 0 has 80 GiB"

  PlanFor ranks() const { return of_gpu ? PlanFor::kGpus : PlanFor::kCpus; }
};

/// Bytes of the plan that count against the limit.
std::int64_t bytes_against(const RankPlan& plan, const Limit& limit);
inline bool fits(const RankPlan& plan, const Limit& limit) {
  return bytes_against(plan, limit) <= limit.bytes;
}

/// Other settings, with which a training fits.
struct Remedy {
  std::vector<std::pair<std::string, std::string>> set;  ///< keys of a job file, with their values
  std::string price;                                     ///< what they cost
  std::int64_t bytes = 0;                                ///< against the limit
};

/// Settings with which a run that does not fit would fit, by plans of each; empty: none was found. First single
/// changes, the cheapest first: another strategy, no copy for checkpoints, smaller micro-batches, tight
/// units, recomputed blocks, bf16, offload from a GPU, more nodes. Where none is enough, one combination that is. Makes
/// at most about fifty plans, and begins none after kSearch.
std::vector<Remedy> remedies(const RunConfig& config, const agent::rank::RankEnvironment& environment,
                             const Limit& limit);

inline constexpr std::chrono::seconds kSearch{20};

/// "train.micro_batch_size = 2, train.precision = bf16".
std::string settings_text(const Remedy& remedy);

/// A sentence: what the plan needs, what there is, and what would fit. Empty where the plan fits.
std::string misfit_text(const RankPlan& plan, const Limit& limit, const std::vector<Remedy>& remedies);

}  // namespace worker
