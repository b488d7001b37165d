#include "fsdp/comm/buffer_pool.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "fsdp/comm/transport.h"

namespace fsdp {
namespace {

c10::Stream current_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

struct BufferPool::Slots {
  struct Slot {
    at::Tensor memory;
    std::int64_t bytes = 0;
    bool taken = false;
    std::optional<c10::Event> given_back;     // only on devices with streams
    std::optional<c10::Stream> allocated_on;  // there too
  };

  Slots(at::Device d, std::shared_ptr<PeerMemory> m) : device(d), peer_memory(std::move(m)) {}

  at::Tensor allocate(std::int64_t bytes) const {
    if (peer_memory) return peer_memory->allocate(bytes);
    return at::empty({bytes}, at::TensorOptions(at::kByte).device(device));
  }

  std::size_t take(std::int64_t bytes) {
    largest = std::max(largest, bytes);
    auto slot = std::find_if(slots.begin(), slots.end(), [&](const Slot& s) { return !s.taken && s.bytes >= bytes; });
    // A free slot that is too small is replaced, so that there are never more slots than buffers in use.
    if (slot == slots.end()) slot = std::find_if(slots.begin(), slots.end(), [](const Slot& s) { return !s.taken; });
    if (slot == slots.end()) slot = slots.emplace(slots.end());
    if (slot->given_back) slot->given_back->block(current_stream(device));
    if (slot->bytes < bytes) {
      free(*slot);  // first, so that the old and the new one never exist together
      slot->memory = allocate(largest);
      slot->bytes = largest;
      if (!device.is_cpu()) slot->allocated_on = current_stream(device);
    } else if (peer_memory) {
      peer_memory->await_readers(slot->memory);
    }
    slot->taken = true;
    return static_cast<std::size_t>(slot - slots.begin());
  }

  /// The allocator gives the memory to the next work of the stream that it was allocated on.
  void free(Slot& slot) {
    if (slot.given_back && slot.allocated_on) slot.given_back->block(*slot.allocated_on);
    if (keeps && slot.bytes > 0) kept.push_back({slot.memory, slot.bytes, false, std::nullopt, slot.allocated_on});
    slot.memory = at::Tensor();
    slot.bytes = 0;
  }

  void give_back(std::size_t index) {
    Slot& slot = slots[index];
    slot.taken = false;
    if (device.is_cpu()) return;
    if (!slot.given_back) slot.given_back.emplace(device.type());
    slot.given_back->record(current_stream(device));
  }

  at::Device device;
  std::shared_ptr<PeerMemory> peer_memory;
  std::int64_t largest = 0;
  std::vector<Slot> slots;
  bool keeps = false;
  std::vector<Slot> kept;  // memory that was a slot's, and that a graph uses
};

BufferPool::BufferPool(at::Device device, std::shared_ptr<PeerMemory> peer_memory)
    : slots_(std::make_shared<Slots>(device, std::move(peer_memory))) {}

BufferPool::Lease::~Lease() {
  slots_->give_back(slot_);
}

c10::DataPtr BufferPool::Lease::part(std::int64_t offset) {
  auto* holder = new std::shared_ptr<Lease>(shared_from_this());
  auto* start = static_cast<char*>(slots_->slots[slot_].memory.mutable_data_ptr()) + offset;
  return {start, holder, [](void* held) { delete static_cast<std::shared_ptr<Lease>*>(held); }, slots_->device};
}

std::shared_ptr<BufferPool::Lease> BufferPool::take(std::int64_t bytes) {
  return std::make_shared<Lease>(slots_, slots_->take(bytes));
}

at::Tensor BufferPool::tensor(std::int64_t numel, const at::TensorOptions& options) {
  const auto bytes = numel * static_cast<std::int64_t>(options.dtype().itemsize());
  const std::shared_ptr<Lease> lease = take(bytes);
  auto memory = std::make_shared<c10::DataPtr>(lease->part(0));
  return at::from_blob(
      memory->get(), {numel}, [memory](void*) {}, options);
}

void BufferPool::trim() {
  for (Slots::Slot& slot : slots_->slots) {
    if (slot.taken || slot.bytes == 0) continue;
    if (slots_->peer_memory) slots_->peer_memory->await_readers(slot.memory);
    slots_->free(slot);
  }
}

std::int64_t BufferPool::bytes() const {
  std::int64_t sum = 0;
  for (const auto* list : {&slots_->slots, &slots_->kept})
    for (const Slots::Slot& slot : *list) sum += slot.bytes;
  return sum;
}

void BufferPool::keep_memory(bool keeps) {
  slots_->keeps = keeps;
  if (keeps) return;
  for (const Slots::Slot& memory : slots_->kept) {
    if (!memory.allocated_on) continue;
    c10::Event used(slots_->device.type());
    used.record(current_stream(slots_->device));
    used.block(*memory.allocated_on);
  }
  slots_->kept.clear();
}

void BufferPool::mark_free_slots() {
  for (Slots::Slot& slot : slots_->slots)
    if (!slot.taken && slot.given_back) slot.given_back->record(current_stream(slots_->device));
}

}  // namespace fsdp
