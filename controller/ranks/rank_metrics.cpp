#include "controller/ranks/rank_metrics.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>
#include <utility>

namespace ranks {

void NewestMetrics::add(std::span<const store::MetricRow> rows, std::span<const store::DeclaredSeries> declared) {
  std::set<core::JobId> to_read;
  for (const auto& one : declared) to_read.insert(one.job);
  {
    std::lock_guard lock(mutex_);
    for (const auto& row : rows) {
      const auto found = jobs_.find(row.job);
      if (found == jobs_.end() || !merge(found->second, row)) to_read.insert(row.job);
    }
  }
  for (const auto job : to_read) {
    try {
      auto fresh = read(job);
      std::lock_guard lock(mutex_);
      enter(job, std::move(fresh));
    } catch (const std::exception&) {
      forget(job);
    }
  }
}

std::optional<store::MetricRow> NewestMetrics::get(core::JobId job) {
  auto found = known(job);
  if (!found.row) return std::nullopt;
  found.row->values.clear();
  for (const auto& series : found.series) found.row->values.push_back({series.series.name, series.value});
  return std::move(found.row);
}

NewestMetrics::Known NewestMetrics::known(core::JobId job) {
  {
    std::lock_guard lock(mutex_);
    if (const auto found = jobs_.find(job); found != jobs_.end()) return found->second;
  }
  auto fresh = read(job);
  std::lock_guard lock(mutex_);
  // An entry that was added meanwhile is newer.
  if (const auto found = jobs_.find(job); found != jobs_.end()) return found->second;
  enter(job, fresh);
  return fresh;
}

void NewestMetrics::enter(core::JobId job, Known known) {
  if (!jobs_.insert_or_assign(job, std::move(known)).second) return;
  order_.push_back(job);
  if (order_.size() > kJobs) {
    jobs_.erase(order_.front());
    order_.pop_front();
  }
}

/// False: only the store knows what the series come to now.
bool NewestMetrics::merge(Known& known, const store::MetricRow& row) {
  const std::pair at(row.attempt, row.step);
  if (row.rank == 0 && (!known.row || at >= std::pair(known.row->attempt, known.row->step))) known.row = row;
  for (const auto& value : row.values) {
    const auto found =
        std::ranges::find(known.series, value.series, [](const auto& series) { return series.series.name; });
    if (found == known.series.end() || found->series.over_ranks != spec::OverRanks::kRank0) return false;
    if (row.rank != 0 || at < std::pair(found->attempt, found->step)) continue;
    found->attempt = row.attempt;
    found->step = row.step;
    found->value = value.value;
  }
  return true;
}

MetricsWriter::MetricsWriter(store::Store& store, common::Hearing& hearing, NewestMetrics& newest, bool threads)
    : store_(store), hearing_(hearing), newest_(newest), threads_(threads) {
  if (threads_) thread_ = std::thread([this] { run(); });
}

MetricsWriter::Key MetricsWriter::key_of(const store::MetricRow& row) {
  std::size_t series = 0;
  for (const auto& value : row.values) series = series * 31 + std::hash<std::string>()(value.series);
  return {row.job, row.attempt, row.rank, row.step, series};
}

MetricsWriter::Taken MetricsWriter::take(std::vector<store::MetricRow> rows,
                                         std::vector<store::DeclaredSeries> declared, bool soon) {
  if (!threads_) {
    auto batch = std::make_shared<Batch>();
    batch->fate = write(rows, declared) ? Fate::kDurable : Fate::kFailed;
    return {rows.size(), std::move(batch)};
  }
  std::lock_guard lock(mutex_);
  if (closed_) return {};
  Taken taken{.batch = next_};
  take_new(std::move(declared));
  for (auto& row : rows) {
    if (!has_room()) break;
    next_->rows.push_back(std::move(row));
    ++taken.rows;
  }
  soon_ = soon_ || soon;
  wake_.notify_one();
  return taken;
}

std::size_t MetricsWriter::add(const std::vector<store::MetricRow>& rows, std::vector<store::DeclaredSeries> declared,
                               core::Millis patience) {
  if (rows.empty()) return 0;
  if (!threads_) return write(rows, declared) ? rows.size() : 0;
  const bool waits = patience > core::Millis(0) && !hearing_.is_slow();
  std::unique_lock lock(mutex_);
  hand_over(rows, std::move(declared));
  soon_ = soon_ || waits;
  wake_.notify_one();
  const auto settled = [&] {
    const auto last = on_their_way_.find(key_of(rows.back()));
    return closed_ || last == on_their_way_.end() || last->second->fate != Fate::kWaits;
  };
  if (waits) settled_.wait_for(lock, patience, settled);
  return take_durable(rows);
}

/// All but those that are written already or on their way.
void MetricsWriter::take_new(std::vector<store::DeclaredSeries> declared) {
  if (declared_.size() > kJobsKnown) declared_.clear();
  for (auto& one : declared) {
    auto& known = declared_[one.job];
    const auto found = std::ranges::find(known, one.series.name, &spec::Series::name);
    if (found == known.end()) {
      known.push_back(one.series);
    } else if (*found == one.series) {
      continue;
    } else {
      *found = one.series;
    }
    next_->declared.push_back(std::move(one));
  }
}

void MetricsWriter::hand_over(const std::vector<store::MetricRow>& rows, std::vector<store::DeclaredSeries> declared) {
  if (closed_) return;
  take_new(std::move(declared));
  if (on_their_way_.size() + rows.size() > kRowsLimit && std::exchange(some_settled_, false)) forget_settled();
  for (const auto& row : rows) {
    if (on_their_way_.size() >= kRowsLimit || !has_room()) return;
    if (on_their_way_.try_emplace(key_of(row), next_).second) next_->rows.push_back(row);
  }
}

std::size_t MetricsWriter::take_durable(const std::vector<store::MetricRow>& rows) {
  std::size_t taken = 0;
  bool all = true;
  for (const auto& row : rows) {
    const auto found = on_their_way_.find(key_of(row));
    // One step twice in one heartbeat is one row.
    const bool again = found == on_their_way_.end() && taken > 0 && key_of(row) == key_of(rows[taken - 1]);
    const Fate outcome = again                          ? Fate::kDurable
                         : found == on_their_way_.end() ? Fate::kFailed
                                                        : found->second->fate.load();
    all = all && outcome == Fate::kDurable;
    if (all) ++taken;
    // A row that failed is handed over again when it is sent again.
    const bool settled = found != on_their_way_.end() && outcome != Fate::kWaits;
    if (settled && (all || outcome == Fate::kFailed)) on_their_way_.erase(found);
  }
  return taken;
}

// Settled rows may be those of ranks that have ended. Such a row, sent again, is written again: this changes nothing.
void MetricsWriter::forget_settled() {
  std::erase_if(on_their_way_, [](const auto& entry) { return entry.second->fate != Fate::kWaits; });
}

void MetricsWriter::close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  wake_.notify_all();
  settled_.notify_all();
  // Whoever is told of a commit may be gone afterwards.
  if (thread_.joinable()) thread_.join();
}

void MetricsWriter::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return closed_ || !next_->rows.empty(); });
    wake_.wait_for(lock, kGather, [&] { return closed_ || soon_; });
    if (closed_) return;
    const auto batch = std::exchange(next_, std::make_shared<Batch>());
    being_written_ = batch->rows.size();
    soon_ = false;
    lock.unlock();
    const bool durable = write(batch->rows, batch->declared);
    lock.lock();
    if (!durable) declared_.clear();
    batch->rows.clear();
    batch->fate = durable ? Fate::kDurable : Fate::kFailed;
    being_written_ = 0;
    some_settled_ = true;
    settled_.notify_all();
    lock.unlock();
    if (on_settled_) on_settled_();
    lock.lock();
  }
}

bool MetricsWriter::write(const std::vector<store::MetricRow>& rows,
                          const std::vector<store::DeclaredSeries>& declared) {
  std::string problem;
  try {
    const common::Hearing::Write under_way(hearing_);
    store_.add_metrics(rows, declared);
  } catch (const std::exception& e) {
    problem = e.what();
  }
  if (problem.empty()) newest_.add(rows, declared);
  std::lock_guard lock(mutex_);
  if (problem != problem_) {
    if (problem.empty()) {
      spdlog::info("metrics are written again");
    } else {
      spdlog::error("metrics cannot be written: {}", problem);
    }
  }
  problem_ = problem;
  failing_ = !problem.empty();
  return problem.empty();
}

}  // namespace ranks
