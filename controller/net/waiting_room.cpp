#include "controller/net/waiting_room.h"

namespace net {

std::optional<WaitingRoom::Id> WaitingRoom::enter(Id id, const Address& from, Time now) {
  Entry entry{network_of(from), now, turns_.insert(turns_.end(), id), 0};
  auto& network = networks_[entry.network];
  if (network.ids.empty()) network.is_known = known_->is_known(entry.network, now);
  entry.seat = network.ids.size();
  network.ids.push_back(id);
  here_[id] = entry;
  if (here_.size() <= places_) return std::nullopt;
  const auto leaves = victim(now);
  leave(leaves);
  return leaves;
}

WaitingRoom::Id WaitingRoom::victim(Time now) {
  if (const auto oldest = turns_.front(); now - here_.at(oldest).since > kFairTime) return oldest;
  const Network* busiest = nullptr;
  for (const auto& [address, network] : networks_) {
    const bool is_worse = busiest == nullptr || network.is_known < busiest->is_known ||
                          (network.is_known == busiest->is_known && network.ids.size() > busiest->ids.size());
    if (is_worse) busiest = &network;
  }
  return busiest->ids[chance_() % busiest->ids.size()];
}

void WaitingRoom::leave(Id id) {
  const auto found = here_.find(id);
  if (found == here_.end()) return;
  const auto network = networks_.find(found->second.network);
  auto& ids = network->second.ids;
  // The last one takes the seat.
  ids[found->second.seat] = ids.back();
  here_.at(ids.back()).seat = found->second.seat;
  ids.pop_back();
  if (ids.empty()) networks_.erase(network);
  turns_.erase(found->second.turn);
  here_.erase(found);
}

void WaitingRoom::know(const Address& address, Time now) {
  known_->know(address, now);
  const auto here = networks_.find(network_of(address));
  if (here != networks_.end()) here->second.is_known = true;
}

std::vector<WaitingRoom::Id> WaitingRoom::overdue(Time now) {
  std::vector<Id> late;
  while (!turns_.empty() && now - here_.at(turns_.front()).since >= patience_) {
    late.push_back(turns_.front());
    leave(late.back());
  }
  return late;
}

}  // namespace net
