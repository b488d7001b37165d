#pragma once

#include <condition_variable>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/hearing.h"
#include "ranks/newest_metrics.h"
#include "store/store.h"

namespace runtime {

/// Writes ranks' metrics, those of many heartbeats in one transaction, and tells NewestMetrics what is durable.
/// Thread-safe.
///
/// A rank sends its rows again until they are taken, and add() waits for them only a moment. So rows that are on their
/// way are remembered: they are written once, however often they are sent, and taken when they are durable.
class MetricsWriter {
 public:
  /// Without threads, add() writes in the caller's thread.
  MetricsWriter(store::Store& store, Hearing& hearing, NewestMetrics& newest, bool threads);
  ~MetricsWriter();
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  /// How many of `rows`, counted from the first, are durable: those are never to be sent again. Waits for the others at
  /// most Hearing::kPatience, and not at all while the disk is slow; they are on their way, unless there are too many.
  /// `declared`: what is known of their series; what was declared already is not written again.
  std::size_t add(const std::vector<store::MetricRow>& rows, std::vector<store::DeclaredSeries> declared = {});
  /// Empty, or why the newest write failed.
  std::string problem() const;
  void close();

  /// Rows on their way beyond this are not taken, so that a slow disk costs memory only up to here (about 50 MB with
  /// five series a row).
  static constexpr std::size_t kRowsLimit = 131072;
  /// What more jobs declare is written again.
  static constexpr std::size_t kJobsKnown = 4096;

 private:
  enum class Outcome { kWaits, kDurable, kFailed };
  struct Batch {
    std::vector<store::MetricRow> rows;
    std::vector<store::DeclaredSeries> declared;
    Outcome outcome = Outcome::kWaits;
  };
  /// The last part tells rows of one step with unlike series apart.
  using Key = std::tuple<core::JobId, core::AttemptNumber, core::RankNumber, core::Step, std::size_t>;
  static Key key_of(const store::MetricRow& row);
  void run();
  bool write(const std::vector<store::MetricRow>& rows, const std::vector<store::DeclaredSeries>& declared);
  std::vector<store::DeclaredSeries> take_new(std::vector<store::DeclaredSeries> declared);
  void hand_over(const std::vector<store::MetricRow>& rows, std::vector<store::DeclaredSeries> declared);
  std::size_t take_durable(const std::vector<store::MetricRow>& rows);
  void forget_settled();

  store::Store& store_;
  Hearing& hearing_;
  NewestMetrics& newest_;
  const bool threads_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, settled_;
  std::shared_ptr<Batch> next_ = std::make_shared<Batch>();
  std::map<Key, std::shared_ptr<Batch>> on_their_way_;           // or settled, and not asked for yet
  std::map<core::JobId, std::vector<schema::Series>> declared_;  // written, or on their way
  bool some_settled_ = false;                                    // since forget_settled()
  bool closed_ = false;
  std::string problem_;
  std::thread thread_;
};

}  // namespace runtime
