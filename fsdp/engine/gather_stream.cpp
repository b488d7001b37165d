#include "fsdp/engine/gather_stream.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace fsdp {

GatherStream::GatherStream(at::Device device) : device_(device) {
  if (device.is_cpu()) return;
  stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, /*isHighPriority=*/true);
}

c10::Stream GatherStream::current() const {
  return c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
}

void GatherStream::run(const std::optional<c10::Event>& after, const std::function<void()>& gather) const {
  if (!stream_) return gather();
  if (after) after->block(*stream_);
  const c10::StreamGuard guard(*stream_);
  gather();
}

void GatherStream::mark(std::optional<c10::Event>& event) const {
  if (!stream_) return;
  if (!event) event.emplace(device_.type());
  event->record(current());
}

void GatherStream::wait_for(const std::optional<c10::Event>& event) const {
  if (stream_ && event) event->block(current());
}

}  // namespace fsdp
