#include "ranks/metrics_writer.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace runtime {

MetricsWriter::MetricsWriter(store::Store& store, Hearing& hearing, NewestMetrics& newest, bool threads)
    : store_(store), hearing_(hearing), newest_(newest), threads_(threads) {
  if (threads_) thread_ = std::thread([this] { run(); });
}

MetricsWriter::~MetricsWriter() {
  close();
  if (thread_.joinable()) thread_.join();
}

MetricsWriter::Key MetricsWriter::key_of(const store::MetricRow& row) {
  std::size_t series = 0;
  for (const auto& value : row.values) series = series * 31 + std::hash<std::string>()(value.series);
  return {row.job, row.attempt, row.rank, row.step, series};
}

std::size_t MetricsWriter::add(const std::vector<store::MetricRow>& rows, std::vector<store::DeclaredSeries> declared) {
  if (rows.empty()) return 0;
  if (!threads_) return write(rows, declared) ? rows.size() : 0;
  const bool slow = hearing_.is_slow();
  std::unique_lock lock(mutex_);
  hand_over(rows, std::move(declared));
  wake_.notify_one();
  const auto settled = [&] {
    const auto last = on_their_way_.find(key_of(rows.back()));
    return closed_ || last == on_their_way_.end() || last->second->outcome != Outcome::kWaits;
  };
  if (!slow) settled_.wait_for(lock, Hearing::kPatience, settled);
  return take_durable(rows);
}

/// Without those that are written already or on their way.
std::vector<store::DeclaredSeries> MetricsWriter::take_new(std::vector<store::DeclaredSeries> declared) {
  if (declared_.size() > kJobsKnown) declared_.clear();
  std::erase_if(declared, [&](const store::DeclaredSeries& one) {
    auto& known = declared_[one.job];
    const auto found = std::ranges::find(known, one.series.name, &schema::Series::name);
    if (found != known.end() && *found == one.series) return true;
    if (found == known.end()) {
      known.push_back(one.series);
    } else {
      *found = one.series;
    }
    return false;
  });
  return declared;
}

void MetricsWriter::hand_over(const std::vector<store::MetricRow>& rows, std::vector<store::DeclaredSeries> declared) {
  if (closed_) return;
  declared = take_new(std::move(declared));
  std::ranges::move(declared, std::back_inserter(next_->declared));
  if (on_their_way_.size() + rows.size() > kRowsLimit && std::exchange(some_settled_, false)) forget_settled();
  for (const auto& row : rows) {
    if (on_their_way_.size() >= kRowsLimit) return;
    if (on_their_way_.try_emplace(key_of(row), next_).second) next_->rows.push_back(row);
  }
}

std::size_t MetricsWriter::take_durable(const std::vector<store::MetricRow>& rows) {
  std::size_t taken = 0;
  bool all = true;
  for (const auto& row : rows) {
    const auto found = on_their_way_.find(key_of(row));
    // The same step twice in one heartbeat is one row.
    const bool again = found == on_their_way_.end() && taken > 0 && key_of(row) == key_of(rows[taken - 1]);
    const auto outcome = again                          ? Outcome::kDurable
                         : found == on_their_way_.end() ? Outcome::kFailed
                                                        : found->second->outcome;
    all = all && outcome == Outcome::kDurable;
    if (all) ++taken;
    // What failed is handed over again when it is sent again.
    const bool settled = found != on_their_way_.end() && outcome != Outcome::kWaits;
    if (settled && (all || outcome == Outcome::kFailed)) on_their_way_.erase(found);
  }
  return taken;
}

// Of ranks that have ended, say. Sent again, such a row is written again, which changes nothing.
void MetricsWriter::forget_settled() {
  std::erase_if(on_their_way_, [](const auto& entry) { return entry.second->outcome != Outcome::kWaits; });
}

std::string MetricsWriter::problem() const {
  std::lock_guard lock(mutex_);
  return problem_;
}

void MetricsWriter::close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  wake_.notify_all();
  settled_.notify_all();
}

void MetricsWriter::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return closed_ || !next_->rows.empty(); });
    if (closed_) return;
    const auto batch = std::exchange(next_, std::make_shared<Batch>());
    lock.unlock();
    const bool durable = write(batch->rows, batch->declared);
    lock.lock();
    if (!durable) declared_.clear();
    batch->rows.clear();
    batch->outcome = durable ? Outcome::kDurable : Outcome::kFailed;
    some_settled_ = true;
    settled_.notify_all();
  }
}

bool MetricsWriter::write(const std::vector<store::MetricRow>& rows,
                          const std::vector<store::DeclaredSeries>& declared) {
  std::string problem;
  try {
    const Hearing::Write under_way(hearing_);
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
  return problem.empty();
}

}  // namespace runtime
