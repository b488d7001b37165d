#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "controller/common/clock.h"
#include "controller/store/store.h"

namespace actions {

/// The store's outbox, and how far each of its actions is. RemoveFiles is left out (see JobRemover). Thread-safe; the
/// store is never asked under the lock.
class Outbox {
 public:
  using Row = store::PendingAction;
  using Ids = std::vector<std::int64_t>;
  static bool is_start(const Row& row) { return std::holds_alternative<core::StartAttempt>(row.action); }
  static bool is_hold(const Row& row) { return std::holds_alternative<core::HoldAttempt>(row.action); }

  Outbox(store::Store& store, common::Clock& clock) : store_(store), clock_(clock) {}

  /// Takes in what the store has by now, and returns the rows that are new. Once one start of a job is launching, all
  /// its starts are. Throws store::Error.
  std::vector<Row> read();
  /// Every row, oldest first.
  std::vector<Row> rows() const;
  /// Those that nobody works on and whose pause is over, oldest first. Of a job's holds and releases the newest alone:
  /// it decides.
  std::vector<Row> ready() const;

  /// Somebody works on the row from now on, until end(). Its state becomes that of this moment. False: somebody works
  /// on another start of the same job already.
  bool begin(Row& row);
  void end(const Row& row);
  /// An executor is asked next: durable when it returns, with what the attempts were given. Throws store::Error; then
  /// nothing is.
  void set_launching(const std::vector<store::LaunchingAction>& rows);
  /// It was asked, and surely has nothing of it. False: the store did not take that, so they stay as they are.
  bool set_pending(Ids ids);
  /// What came of them is durable. One that the store does not take now is not carried out again in this run.
  void complete(const Ids& ids);
  /// Of a hold or release with all that it has overtaken, in one transaction. False: the store does not take it now.
  bool complete_hold(const Row& row);
  /// Completes what the store has not taken before.
  void complete_rest();
  void pause(const Row& row, core::Millis pause);

 private:
  struct Entry {
    Row row;
    bool under_way = false;
    core::Millis not_before{0};  // monotonic
  };
  bool is_busy(const Row& row) const;
  Entry* find(std::int64_t id);
  /// Forgets them once the store has. False: it does not take that now.
  bool tick_off(const Ids& ids, const std::string& what);
  void spread_launching();

  store::Store& store_;
  common::Clock& clock_;
  mutable std::mutex mutex_;
  std::map<std::int64_t, Entry> rows_;
  std::set<core::JobId> starting_;
  std::set<std::int64_t> to_complete_;  // carried out, but the store did not take that
};

}  // namespace actions
