#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "agent/rank/reporter.h"
#include "base/usage_error.h"
#include "fsdp/comm/communicator.h"

namespace worker {

/// Runs `work` on every rank. When `work` fails on any rank, all ranks throw the same error: base::UsageError if a rank
/// threw that, otherwise std::runtime_error. std::bad_alloc is not shared and leaves at once. Collective, but `work`
/// must make no collective calls.
template <class Work>
void together(fsdp::Communicator& ranks, Work work) {
  std::string usage, other;
  try {
    work();
  } catch (const base::UsageError& error) {
    usage = error.what();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    other = error.what();
  }
  if (const auto error = ranks.agree(usage); !error.empty()) throw base::UsageError(error);
  if (const auto error = ranks.agree(other); !error.empty()) throw std::runtime_error(error);
}

/// Facts that one rank states in a step, and those of all ranks together: sums over the ranks, the strongest stop, and
/// one of the traces that ranks have heard of.
struct Agreement {
  std::vector<double> losses;  ///< sums of the losses of the step's targets, see Losses; as many on every rank
  double next_weight = 0;      ///< of the next step's batches, see Batch::weight
  double next_tokens = 0;      ///< of these batches
  agent::rank::StopKind stop = agent::rank::StopKind::kNone;
  agent::rank::TraceWish trace;  ///< see [Note: one step on all ranks] in worker/train/step_trace.h
};

/// The all-reduce of [Note: leaving together] in worker/train/run.h. It starts before the last backward, and is read
/// after it.
class AgreementUnderWay {
 public:
  /// Starts the all-reduce. Collective. `ranks` must outlive the object.
  AgreementUnderWay(fsdp::Communicator& ranks, const Agreement& words);

  /// Waits for the all-reduce. Call it once. Where a rank has heard of a trace, the ranks tell each other their traces
  /// besides. Collective.
  Agreement wait();

 private:
  fsdp::Communicator* ranks_;
  agent::rank::TraceWish mine_;
  at::Tensor sums_;  // double [losses + 5]
  std::unique_ptr<fsdp::Pending> pending_;
};

}  // namespace worker
