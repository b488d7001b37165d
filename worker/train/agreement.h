#pragma once

#include <ATen/core/Tensor.h>

#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>

#include "fsdp/communicator.h"
#include "rank/errors.h"
#include "rank/reporter.h"

namespace worker {

/// Runs `work` on every rank. When it fails on any, all throw the same, of the same kind: UsageError, or
/// std::runtime_error for any other but std::bad_alloc. Collective, but `work` must not be.
template <class Work>
void together(fsdp::Communicator& ranks, Work work) {
  std::string usage, other;
  try {
    work();
  } catch (const UsageError& error) {
    usage = error.what();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    other = error.what();
  }
  if (const auto error = ranks.agree(usage); !error.empty()) throw UsageError(error);
  if (const auto error = ranks.agree(other); !error.empty()) throw std::runtime_error(error);
}

/// What all ranks told one another in one step.
struct Agreement {
  double loss = 0;  ///< mean over the ranks
  StopKind stop = StopKind::kNone;
};

/// [Note: leaving together] of train/loop.h: an all-gather of (loss, stop) a rank, started before the last backward,
/// read after it.
class AgreementUnderWay {
 public:
  /// Starts. Collective.
  AgreementUnderWay(fsdp::Communicator& ranks, double loss, StopKind stop);

  /// Call once.
  Agreement wait();

 private:
  at::Tensor table_;
  std::unique_ptr<fsdp::Pending> pending_;
};

}  // namespace worker
