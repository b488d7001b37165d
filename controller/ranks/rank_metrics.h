#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "controller/common/hearing.h"
#include "controller/store/store.h"

namespace ranks {

/// The newest step of a job's rank 0, and its series with their newest values. Read from the store once, and kept up to
/// date by whoever writes metrics, so that a job that reports can be shown while the disk stands still. Remembers kJobs
/// jobs. Thread-safe.
class NewestMetrics {
 public:
  static constexpr std::size_t kJobs = 4096;
  explicit NewestMetrics(store::Store& store) : store_(store) {}

  /// Takes rows and series just written. Reads the store, so call it only where waiting for the disk harms nobody.
  /// Never throws: what can't be read now is read when somebody asks.
  void add(std::span<const store::MetricRow> rows, std::span<const store::DeclaredSeries> declared);

  /// The newest step; its values are the newest ones of all series, which may be an earlier step's. nullopt: there is
  /// no step. Throws store::Error.
  std::optional<store::MetricRow> get(core::JobId job);
  /// The series that Store::series() returns. Throws store::Error.
  std::vector<store::SeriesRow> series(core::JobId job) { return known(job).series; }
  /// Returns Store::metrics_left_out(), which is read each time. Throws store::Error.
  std::int64_t left_out(core::JobId job) { return store_.metrics_left_out(job); }

 private:
  struct Known {
    std::optional<store::MetricRow> row;
    std::vector<store::SeriesRow> series;
  };
  Known known(core::JobId job);
  Known read(core::JobId job) { return {store_.newest_metric(job), store_.series(job)}; }
  void enter(core::JobId job, Known known);
  void forget(core::JobId job) {
    std::lock_guard lock(mutex_);
    if (jobs_.erase(job) > 0) std::erase(order_, job);
  }
  static bool merge(Known& known, const store::MetricRow& row);

  store::Store& store_;
  std::mutex mutex_;
  std::unordered_map<core::JobId, Known> jobs_;
  std::deque<core::JobId> order_;
};

/// Writes ranks' metrics, those of many heartbeats in one transaction, and tells NewestMetrics what is durable.
/// Thread-safe.
///
/// Rows are taken at once and wait in memory. A commit gathers the rows of kGather. A rank sends its rows again until
/// they are acknowledged, and only durable rows are. take() is for streams, which number their rows. add() is for
/// single heartbeats: rows on their way are remembered, so that each is written once, however often it is sent.
class MetricsWriter {
 public:
  enum class Fate { kWaits, kDurable, kFailed };
  /// Rows that are written in one transaction.
  struct Batch {
    std::vector<store::MetricRow> rows;
    std::vector<store::DeclaredSeries> declared;
    std::atomic<Fate> fate = Fate::kWaits;
  };
  struct Taken {
    std::size_t rows = 0;  // counted from the first; fewer than all: there is no room
    std::shared_ptr<const Batch> batch;
  };

  /// Without threads, rows are written in the caller's thread.
  MetricsWriter(store::Store& store, common::Hearing& hearing, NewestMetrics& newest, bool threads);
  ~MetricsWriter() { close(); }

  /// `settled` is called by the writing thread after each commit, durable or failed. Set it before rows come.
  void on_settled(std::function<void()> settled) { on_settled_ = std::move(settled); }
  /// Takes rows, and never waits. `declared`: what is known of their series; what was declared already is not written
  /// again. `soon`: the commit does not gather.
  Taken take(std::vector<store::MetricRow> rows, std::vector<store::DeclaredSeries> declared, bool soon);
  /// How many of `rows`, counted from the first, are durable: those are never to be sent again. The others are on their
  /// way, unless there is no room. `patience`: how long to wait for them; not at all while the disk is slow.
  std::size_t add(const std::vector<store::MetricRow>& rows, std::vector<store::DeclaredSeries> declared = {},
                  core::Millis patience = common::Hearing::kPatience);
  /// The store takes nothing now: the newest write failed, or the disk is slow.
  bool stands() const { return failing_ || hearing_.is_slow(); }
  /// Empty, or why the newest write failed.
  std::string problem() const {
    std::lock_guard lock(mutex_);
    return problem_;
  }
  void close();

  /// Rows on their way beyond this are not taken, so that a slow disk costs memory only up to here (about 50 MB with
  /// five series a row).
  static constexpr std::size_t kRowsLimit = 131072;
  /// Series that more jobs than this declare are written again.
  static constexpr std::size_t kJobsKnown = 4096;
  static constexpr core::Millis kGather{75};

 private:
  /// The last part tells rows of one step with unlike series apart.
  using Key = std::tuple<core::JobId, core::AttemptNumber, core::RankNumber, core::Step, std::size_t>;
  static Key key_of(const store::MetricRow& row);
  void run();
  bool write(const std::vector<store::MetricRow>& rows, const std::vector<store::DeclaredSeries>& declared);
  void take_new(std::vector<store::DeclaredSeries> declared);
  bool has_room() const { return next_->rows.size() + being_written_ < kRowsLimit; }
  void hand_over(const std::vector<store::MetricRow>& rows, std::vector<store::DeclaredSeries> declared);
  std::size_t take_durable(const std::vector<store::MetricRow>& rows);
  void forget_settled();

  store::Store& store_;
  common::Hearing& hearing_;
  NewestMetrics& newest_;
  const bool threads_;
  std::function<void()> on_settled_;
  std::atomic<bool> failing_ = false;
  mutable std::mutex mutex_;
  std::condition_variable wake_, settled_;
  std::shared_ptr<Batch> next_ = std::make_shared<Batch>();
  std::size_t being_written_ = 0;                              // rows
  bool soon_ = false;                                          // the next commit does not gather
  std::map<Key, std::shared_ptr<Batch>> on_their_way_;         // or settled, and not asked for yet
  std::map<core::JobId, std::vector<spec::Series>> declared_;  // written, or on their way
  bool some_settled_ = false;                                  // since forget_settled()
  bool closed_ = false;
  std::string problem_;
  std::thread thread_;
};

}  // namespace ranks
