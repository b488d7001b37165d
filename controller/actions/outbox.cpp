#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "controller/actions/launches.h"

namespace actions {
namespace {

/// The pause before the store is asked again to take what it did not take.
constexpr core::Millis kCompleteAgain{100};

}  // namespace

std::vector<Outbox::Row> Outbox::read() {
  auto stored = store_.pending_actions();
  std::erase_if(stored, [](const Row& row) { return std::holds_alternative<core::RemoveFiles>(row.action); });
  std::vector<std::int64_t> fresh;
  std::set<std::int64_t> there;
  std::lock_guard lock(mutex_);
  for (auto& row : stored) {
    there.insert(row.id);
    if (rows_.contains(row.id) || to_complete_.contains(row.id)) continue;
    fresh.push_back(row.id);
    rows_.emplace(row.id, Entry{std::move(row)});
  }
  std::erase_if(rows_, [&](const auto& entry) { return !there.contains(entry.first) && !entry.second.under_way; });
  spread_launching();
  std::vector<Row> found;
  for (const auto id : fresh) found.push_back(rows_.at(id).row);
  return found;
}

// A job that was held and released has several starts of one attempt. What one of them may have started, all may have.
void Outbox::spread_launching() {
  std::set<core::JobId> launching;
  for (const auto& [id, entry] : rows_) {
    if (is_start(entry.row) && entry.row.state == store::ActionState::kLaunching) launching.insert(entry.row.job);
  }
  for (auto& [id, entry] : rows_) {
    if (is_start(entry.row) && launching.contains(entry.row.job)) entry.row.state = store::ActionState::kLaunching;
  }
}

std::vector<Outbox::Row> Outbox::rows() const {
  std::vector<Row> all;
  std::lock_guard lock(mutex_);
  for (const auto& [id, entry] : rows_) all.push_back(entry.row);
  return all;
}

bool Outbox::is_busy(const Row& row) const {
  return is_start(row) && starting_.contains(row.job);
}

std::vector<Outbox::Row> Outbox::ready() const {
  std::vector<Row> found;
  std::set<core::JobId> held;
  const auto now = clock_.monotonic();
  std::lock_guard lock(mutex_);
  for (auto at = rows_.rbegin(); at != rows_.rend(); ++at) {
    const auto& entry = at->second;
    if (is_hold(entry.row) && !held.insert(entry.row.job).second) continue;
    if (!entry.under_way && now >= entry.not_before && !is_busy(entry.row)) found.push_back(entry.row);
  }
  std::ranges::reverse(found);
  return found;
}

Outbox::Entry* Outbox::find(std::int64_t id) {
  const auto found = rows_.find(id);
  return found == rows_.end() ? nullptr : &found->second;
}

bool Outbox::begin(Row& row) {
  std::lock_guard lock(mutex_);
  auto* entry = find(row.id);
  if (entry == nullptr || entry->under_way || is_busy(row)) return false;
  entry->under_way = true;
  row.state = entry->row.state;
  row.share = entry->row.share;
  if (is_start(row)) starting_.insert(row.job);
  return true;
}

void Outbox::end(const Row& row) {
  std::lock_guard lock(mutex_);
  if (auto* entry = find(row.id)) entry->under_way = false;
  if (is_start(row)) starting_.erase(row.job);
}

void Outbox::set_launching(const std::vector<store::LaunchingAction>& rows) {
  if (rows.empty()) return;
  store_.set_launching(rows);
  std::lock_guard lock(mutex_);
  for (const auto& [id, share] : rows) {
    auto* entry = find(id);
    if (entry == nullptr) continue;
    entry->row.state = store::ActionState::kLaunching;
    entry->row.share = share;
  }
  spread_launching();
}

bool Outbox::set_pending(Ids ids) {
  {
    std::lock_guard lock(mutex_);
    std::erase_if(ids, [&](std::int64_t id) {
      const auto* entry = find(id);
      return entry == nullptr || entry->row.state == store::ActionState::kPending;
    });
  }
  if (ids.empty()) return true;
  try {
    store_.set_actions(ids, store::ActionState::kPending);
    std::lock_guard lock(mutex_);
    for (const auto id : ids) {
      if (auto* entry = find(id)) entry->row.state = store::ActionState::kPending;
    }
    return true;
  } catch (const std::exception& error) {
    spdlog::warn("launches that did not happen cannot be written down yet: {}", error.what());
    return false;
  }
}

bool Outbox::tick_off(const Ids& ids, const std::string& what) {
  try {
    if (!ids.empty()) store_.complete_actions(ids);
  } catch (const std::exception& error) {
    spdlog::warn("{} cannot be ticked off yet: {}", what, error.what());
    return false;
  }
  std::lock_guard lock(mutex_);
  for (const auto id : ids) {
    rows_.erase(id);
    to_complete_.erase(id);
  }
  return true;
}

void Outbox::complete(const Ids& ids) {
  if (tick_off(ids, "finished actions")) return;
  std::lock_guard lock(mutex_);
  for (const auto id : ids) rows_.erase(id);
  to_complete_.insert(ids.begin(), ids.end());
}

bool Outbox::complete_hold(const Row& row) {
  Ids ids;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, entry] : rows_) {
      if (id <= row.id && entry.row.job == row.job && is_hold(entry.row)) ids.push_back(id);
    }
  }
  return tick_off(ids, "job " + std::to_string(row.job) + ": a hold");
}

void Outbox::complete_rest() {
  Ids ids;
  {
    std::lock_guard lock(mutex_);
    ids.assign(to_complete_.begin(), to_complete_.end());
  }
  complete(ids);
}

std::optional<core::Millis> Outbox::next_ready(core::Millis since) const {
  std::optional<core::Millis> next;
  std::lock_guard lock(mutex_);
  if (!to_complete_.empty()) next = since + kCompleteAgain;
  for (const auto& [id, entry] : rows_) {
    if (entry.under_way || entry.not_before <= since) continue;
    next = std::min(next.value_or(entry.not_before), entry.not_before);
  }
  return next;
}

void Outbox::pause(const Row& row, core::Millis pause) {
  std::lock_guard lock(mutex_);
  if (auto* entry = find(row.id)) entry->not_before = clock_.monotonic() + pause;
}

}  // namespace actions
