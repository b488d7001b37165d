#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "fsdp/comm/communicator.h"

namespace fsdp {

class Segment;

/// Tells every rank which parameters took part in backward on any rank. A parameter that took part on none is left
/// alone by the optimizer, as one without a gradient in PyTorch.
///
/// One all-gather of a byte a trainable parameter starts at the end of each backward that reduces. Nobody waits for it
/// before the answer is needed. It goes over the CPU, so on a GPU no host waits for the device.
class Participation {
 public:
  /// `communicator` joins all ranks, on the CPU.
  explicit Participation(Communicator& communicator) : communicator_(communicator) {}
  /// Peers may still need this rank's answer.
  ~Participation() { discard(); }
  Participation(const Participation&) = delete;
  Participation& operator=(const Participation&) = delete;

  /// Starts the exchange for `segments`, which are the same on every rank.
  void start(std::vector<Segment*> segments);
  /// Finishes the exchange, if one is under way.
  void finish();
  /// Waits for the exchange and drops its answer, for a failure.
  void discard() { fsdp::discard(pending_); }

 private:
  Communicator& communicator_;
  std::vector<Segment*> segments_;
  at::Tensor table_;  // uint8 [world_size * parameters]
  std::unique_ptr<Pending> pending_;
};

}  // namespace fsdp
