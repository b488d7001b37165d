#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <functional>
#include <optional>

namespace fsdp {

/// The stream that gathers start on. Without it a gather that was started ahead would begin only after all computation
/// that was queued before. On a device without streams everything happens at once.
///
/// A gather reads shards and writes into slots. So its stream waits for the last change of the shards, and for the slot
/// that it takes; see [Note: slots on a device with streams]. The computation waits for the gather.
class GatherStream {
 public:
  explicit GatherStream(at::Device device);

  /// Calls `gather` with this stream as the current one. `after` is what the gathered values depend on.
  void run(const std::optional<c10::Event>& after, const std::function<void()>& gather) const;
  /// Records the place that the current stream has reached, or this stream within run().
  void mark(std::optional<c10::Event>& event) const;
  /// Makes the current stream wait for a mark.
  void wait_for(const std::optional<c10::Event>& event) const;

 private:
  c10::Stream current() const;

  at::Device device_;
  std::optional<c10::Stream> stream_;  // only on devices with streams
};

}  // namespace fsdp
