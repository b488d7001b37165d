#include <numeric>

#include "fsdp/comm/device_mesh.h"
#include "fsdp/comm/watch/watcher.h"

namespace fsdp {

void DeviceMesh::watch(const c10::intrusive_ptr<c10d::Store>& store) {
  if (world_size_ == 1) return;
  make_watcher(*store);
  watch_groups();
}

void DeviceMesh::make_watcher(c10d::Store& store) {
  watcher_ = std::make_shared<watch::Watcher>(
      store, rank_, world_size_,
      watch::WatchOptions{options_.watch_patience, options_.late_after, options_.on_late, options_.timeout,
                          options_.interface_address});
}

void DeviceMesh::watch_groups() const {
  for (const Axis& axis : axes_) watch_group(*axis.communicator, axis.name, ranks_along(axis));
  for (const Axis& axis : axes_)
    if (axis.communicator == shard_ && reduce_ != shard_) watch_group(*reduce_, "reduce", ranks_along(axis));
  for (const auto& [size, group] : shard_groups_) watch_shard_group(*group);
  if (control_ != shard_) watch_control(*control_, 0);
}

/// The ranks of the mesh in this rank's group of `wanted`, in the group's order. The groups are those that connect()
/// finds.
std::vector<int> DeviceMesh::ranks_along(const Axis& wanted) const {
  std::vector<int> ranks;
  int stride = world_size_;
  for (const Axis& axis : axes_) {
    const int size = axis.communicator->world_size(), block = stride;
    stride /= size;
    if (&axis != &wanted) continue;
    for (int i = 0; i < size; ++i) ranks.push_back(rank_ / block * block + i * stride + rank_ % stride);
  }
  return ranks;
}

/// The watcher's name of a group is equal on the group's ranks, and on no others.
void DeviceMesh::watch_group(Communicator& group, const std::string& name, std::vector<int> ranks) const {
  const bool all = static_cast<int>(ranks.size()) == world_size_;
  std::string unique = name + (all ? "" : " from rank " + std::to_string(ranks.front()) + " on");
  group.watch(watcher_, std::move(unique), std::move(ranks));
}

void DeviceMesh::watch_shard_group(Communicator& group) const {
  for (const Axis& axis : axes_) {
    if (axis.communicator != shard_) continue;
    const std::vector<int> all = ranks_along(axis);
    const auto first = all.begin() + shard_->rank() - group.rank();
    watch_group(group, "groups of " + std::to_string(group.world_size()), {first, first + group.world_size()});
  }
}

void DeviceMesh::watch_control(Communicator& control, int number) const {
  std::vector<int> ranks(static_cast<std::size_t>(world_size_));
  std::iota(ranks.begin(), ranks.end(), 0);
  control.watch(watcher_, number == 0 ? "control" : "control " + std::to_string(number), std::move(ranks));
}

}  // namespace fsdp
