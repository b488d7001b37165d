#include "actions/outbox.h"

#include <spdlog/spdlog.h>

#include <algorithm>

namespace actions {
namespace {

bool is_start(const Outbox::Row& row) {
  return std::holds_alternative<core::StartAttempt>(row.action);
}

bool is_hold(const Outbox::Row& row) {
  return std::holds_alternative<core::HoldAttempt>(row.action);
}

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

bool Outbox::begin(Row& row) {
  std::lock_guard lock(mutex_);
  const auto found = rows_.find(row.id);
  if (found == rows_.end() || found->second.under_way || is_busy(row)) return false;
  found->second.under_way = true;
  row.state = found->second.row.state;
  if (is_start(row)) starting_.insert(row.job);
  return true;
}

void Outbox::end(const Row& row) {
  std::lock_guard lock(mutex_);
  if (const auto found = rows_.find(row.id); found != rows_.end()) found->second.under_way = false;
  if (is_start(row)) starting_.erase(row.job);
}

void Outbox::set_launching(const Ids& ids) {
  if (ids.empty()) return;
  store_.set_actions(ids, store::ActionState::kLaunching);
  std::lock_guard lock(mutex_);
  for (const auto id : ids) {
    if (const auto found = rows_.find(id); found != rows_.end())
      found->second.row.state = store::ActionState::kLaunching;
  }
  spread_launching();
}

bool Outbox::set_pending(Ids ids) {
  {
    std::lock_guard lock(mutex_);
    std::erase_if(ids, [&](std::int64_t id) {
      const auto found = rows_.find(id);
      return found == rows_.end() || found->second.row.state == store::ActionState::kPending;
    });
  }
  if (ids.empty()) return true;
  try {
    store_.set_actions(ids, store::ActionState::kPending);
  } catch (const std::exception& error) {
    spdlog::warn("launches that did not happen cannot be written down yet: {}", error.what());
    return false;
  }
  std::lock_guard lock(mutex_);
  for (const auto id : ids) {
    if (const auto found = rows_.find(id); found != rows_.end()) found->second.row.state = store::ActionState::kPending;
  }
  return true;
}

void Outbox::complete(const Ids& ids) {
  if (ids.empty()) return;
  bool completed = true;
  try {
    store_.complete_actions(ids);
  } catch (const std::exception& error) {
    spdlog::warn("finished actions cannot be ticked off yet: {}", error.what());
    completed = false;
  }
  std::lock_guard lock(mutex_);
  for (const auto id : ids) {
    rows_.erase(id);
    if (completed) {
      to_complete_.erase(id);
    } else {
      to_complete_.insert(id);
    }
  }
}

bool Outbox::complete_hold(const Row& row) {
  Ids ids;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, entry] : rows_) {
      if (id <= row.id && entry.row.job == row.job && is_hold(entry.row)) ids.push_back(id);
    }
  }
  try {
    store_.complete_actions(ids);
  } catch (const std::exception& error) {
    spdlog::warn("job {}: a hold cannot be ticked off yet: {}", row.job, error.what());
    return false;
  }
  std::lock_guard lock(mutex_);
  for (const auto id : ids) rows_.erase(id);
  return true;
}

void Outbox::complete_rest() {
  Ids ids;
  {
    std::lock_guard lock(mutex_);
    ids.assign(to_complete_.begin(), to_complete_.end());
  }
  complete(ids);
}

void Outbox::pause(const Row& row, core::Millis pause) {
  std::lock_guard lock(mutex_);
  if (const auto found = rows_.find(row.id); found != rows_.end()) {
    found->second.not_before = clock_.monotonic() + pause;
  }
}

}  // namespace actions
