#include "fsdp/comm/buffer_pool.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "fsdp/comm/transport.h"

namespace fsdp {

c10::Stream current_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

struct BufferPool::Region {
  /// Bytes [begin, end) of a region.
  struct Range {
    std::int64_t begin = 0, end = 0;

    std::int64_t bytes() const { return end - begin; }
    bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
  };

  /// A part that was given back, and where in its stream.
  struct Free {
    Range range;
    std::shared_ptr<c10::Event> since;
  };

  at::Tensor memory;
  std::int64_t bytes = 0;
  std::map<std::int64_t, std::int64_t> taken;  // begin -> end
  std::vector<Free> free;                      // only on devices with streams
  std::optional<c10::Stream> allocated_on;     // there too

  /// The smallest gap of at least so many bytes; empty: there is none.
  Range gap(std::int64_t least) const {
    Range best;
    std::int64_t end = 0;
    const auto look_at = [&](const Range& gap) {
      if (gap.bytes() >= least && (best.bytes() == 0 || gap.bytes() < best.bytes())) best = gap;
    };
    for (const auto& [begin, next] : taken) {
      look_at({end, begin});
      end = next;
    }
    look_at({end, bytes});
    return best;
  }
};

struct BufferPool::Regions {
  Regions(at::Device d, std::shared_ptr<PeerMemory> m) : device(d), peer_memory(std::move(m)) {}

  using Range = Region::Range;

  static Range range_in(const Region& region, std::int64_t bytes) {
    const Range gap = region.gap(bytes);
    if (gap.bytes() == 0) return {};
    if (gap.begin > 0 && gap.end == region.bytes) return {(gap.end - bytes) / kCacheLine * kCacheLine, gap.end};
    return {gap.begin, std::min(whole_cache_lines(gap.begin + bytes), gap.end)};
  }

  /// The region with the smallest gap for so many bytes; null: no region has one.
  std::shared_ptr<Region> find(std::int64_t bytes) const {
    std::shared_ptr<Region> best;
    for (const auto& region : all) {
      const std::int64_t gap = region->gap(bytes).bytes();
      if (gap > 0 && (!best || gap < best->gap(bytes).bytes())) best = region;
    }
    return best;
  }

  bool is_free() const {
    return std::all_of(all.begin(), all.end(), [](const auto& region) { return region->taken.empty(); });
  }

  /// True if the reserved region is to be made, or made anew.
  bool wants_reserved() const { return reserved > 0 && (!main || main->bytes != reserved) && is_free(); }

  std::shared_ptr<Region> make(std::int64_t bytes) {
    auto region = std::make_shared<Region>();
    region->memory =
        peer_memory ? peer_memory->allocate(bytes) : at::empty({bytes}, at::TensorOptions(at::kByte).device(device));
    region->bytes = bytes;
    if (!device.is_cpu()) region->allocated_on = current_stream(device);
    return all.emplace_back(std::move(region));
  }

  std::pair<std::shared_ptr<Region>, std::int64_t> take(std::int64_t bytes) {
    if (wants_reserved()) {
      while (!all.empty()) remove(all.back());  // first, so that the old ones and the new one never exist together
      main = make(reserved);
    }
    std::shared_ptr<Region> region = find(bytes);
    if (!region) {
      // A free region that is too small is replaced, so that there are never more than were in use.
      std::shared_ptr<Region> replaced;
      for (const auto& other : all)
        if (other->taken.empty() && other != main && (!replaced || other->bytes > replaced->bytes)) replaced = other;
      if (replaced) remove(replaced);
      region = make(bytes);
    }
    const Range range = range_in(*region, bytes);
    await(*region, range);
    region->taken.emplace(range.begin, range.end);
    return {region, range.begin};
  }

  /// Whoever uses the range now waits for those who used it before.
  void await(Region& region, const Range& range) const {
    if (peer_memory) peer_memory->await_readers(region.memory.narrow(0, range.begin, range.bytes()));
    std::vector<Region::Free> rest;
    for (const Region::Free& free : region.free) {
      if (!free.range.overlaps(range)) {
        rest.push_back(free);
        continue;
      }
      free.since->block(current_stream(device));
      if (free.range.begin < range.begin) rest.push_back({{free.range.begin, range.begin}, free.since});
      if (range.end < free.range.end) rest.push_back({{range.end, free.range.end}, free.since});
    }
    region.free = std::move(rest);
  }

  void give_back(Region& region, std::int64_t begin) const {
    const auto taken = region.taken.find(begin);
    const Range range{begin, taken->second};
    region.taken.erase(taken);
    note_free(region, range);
  }

  void note_free(Region& region, const Range& range) const {
    if (device.is_cpu()) return;
    auto since = std::make_shared<c10::Event>(device.type());
    since->record(current_stream(device));
    region.free.push_back({range, std::move(since)});
  }

  /// The allocator gives the memory to the next work of the stream that it was allocated on.
  void remove(std::shared_ptr<Region> region) {
    if (region->allocated_on)
      for (const Region::Free& free : region->free) free.since->block(*region->allocated_on);
    if (keeps) kept.push_back(region);
    if (region == main) main.reset();
    all.erase(std::find(all.begin(), all.end(), region));
  }

  at::Device device;
  std::shared_ptr<PeerMemory> peer_memory;
  std::int64_t reserved = 0;
  std::vector<std::shared_ptr<Region>> all;
  std::shared_ptr<Region> main;  // of the reserved bytes; among them
  bool keeps = false;
  std::vector<std::shared_ptr<Region>> kept;  // no longer among them, and a graph uses their memory
};

BufferPool::BufferPool(at::Device device, std::shared_ptr<PeerMemory> peer_memory)
    : regions_(std::make_shared<Regions>(device, std::move(peer_memory))) {}

BufferPool::Lease::~Lease() {
  regions_->give_back(*region_, begin_);
}

c10::DataPtr BufferPool::Lease::part(std::int64_t offset) {
  auto* holder = new std::shared_ptr<Lease>(shared_from_this());
  auto* start = static_cast<char*>(region_->memory.mutable_data_ptr()) + begin_ + offset;
  return {start, holder, [](void* held) { delete static_cast<std::shared_ptr<Lease>*>(held); }, regions_->device};
}

void BufferPool::reserve(std::int64_t bytes) {
  regions_->reserved = bytes;
}

std::shared_ptr<BufferPool::Lease> BufferPool::take(std::int64_t bytes) {
  auto [region, begin] = regions_->take(bytes);
  return std::make_shared<Lease>(regions_, std::move(region), begin);
}

bool BufferPool::has_room(std::int64_t bytes) const {
  return (regions_->wants_reserved() && bytes <= regions_->reserved) || regions_->find(bytes) != nullptr;
}

at::Tensor BufferPool::tensor(std::int64_t numel, const at::TensorOptions& options) {
  const auto bytes = numel * static_cast<std::int64_t>(options.dtype().itemsize());
  const std::shared_ptr<Lease> lease = take(bytes);
  auto memory = std::make_shared<c10::DataPtr>(lease->part(0));
  return at::from_blob(
      memory->get(), {numel}, [memory](void*) {}, options);
}

void BufferPool::trim() {
  for (const auto& region : std::vector(regions_->all)) {
    if (!region->taken.empty()) continue;
    if (regions_->peer_memory) regions_->peer_memory->await_readers(region->memory);
    regions_->remove(region);
  }
}

std::int64_t BufferPool::bytes() const {
  std::int64_t sum = 0;
  for (const auto* list : {&regions_->all, &regions_->kept})
    for (const auto& region : *list) sum += region->bytes;
  return sum;
}

void BufferPool::keep_memory(bool keeps) {
  regions_->keeps = keeps;
  if (keeps) return;
  for (const auto& region : regions_->kept) {
    if (!region->allocated_on) continue;
    c10::Event used(regions_->device.type());
    used.record(current_stream(regions_->device));
    used.block(*region->allocated_on);
  }
  regions_->kept.clear();
}

void BufferPool::mark_free() {
  for (const auto& region : regions_->all) {
    region->free.clear();
    std::int64_t end = 0;
    for (const auto& [begin, next] : region->taken) {
      if (begin > end) regions_->note_free(*region, {end, begin});
      end = next;
    }
    if (region->bytes > end) regions_->note_free(*region, {end, region->bytes});
  }
}

}  // namespace fsdp
