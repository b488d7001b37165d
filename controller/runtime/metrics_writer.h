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

#include "runtime/hearing.h"
#include "store/store.h"

namespace runtime {

/// Writes ranks' metrics, those of many heartbeats in one transaction. Thread-safe.
///
/// A rank sends its rows again until they are taken, and add() waits for them only a moment. So rows that are on their
/// way are remembered: they are written once, however often they are sent, and taken when they are durable.
class MetricsWriter {
 public:
  /// Without threads, add() writes in the caller's thread.
  MetricsWriter(store::Store& store, Hearing& hearing, bool threads);
  ~MetricsWriter();
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  /// How many of `rows`, counted from the first, are durable: those are never to be sent again. Waits for the others at
  /// most Hearing::kPatience, and not at all while the disk is slow; they are on their way, unless there are too many.
  std::size_t add(const std::vector<store::MetricRow>& rows);
  /// Empty, or why the newest write failed.
  std::string problem() const;
  void close();

  /// Rows on their way beyond this are not taken, so that a slow disk costs memory only up to here (about 30 MB).
  static constexpr std::size_t kRowsLimit = 131072;

 private:
  enum class Outcome { kWaits, kDurable, kFailed };
  struct Batch {
    std::vector<store::MetricRow> rows;
    Outcome outcome = Outcome::kWaits;
  };
  using Key = std::tuple<core::JobId, core::AttemptNumber, core::RankNumber, core::Step>;
  static Key key_of(const store::MetricRow& row) { return {row.job, row.attempt, row.rank, row.step}; }
  void run();
  bool write(const std::vector<store::MetricRow>& rows);
  void hand_over(const std::vector<store::MetricRow>& rows);
  std::size_t take_durable(const std::vector<store::MetricRow>& rows);
  void forget_settled();

  store::Store& store_;
  Hearing& hearing_;
  const bool threads_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, settled_;
  std::shared_ptr<Batch> next_ = std::make_shared<Batch>();
  std::map<Key, std::shared_ptr<Batch>> on_their_way_;  // or settled, and not asked for yet
  bool some_settled_ = false;                           // since forget_settled()
  bool closed_ = false;
  std::string problem_;
  std::thread thread_;
};

}  // namespace runtime
