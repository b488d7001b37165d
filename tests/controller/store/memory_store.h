#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "controller/store/store.h"

namespace store {

/// A Store without a file, for tests and simulations. Thread-safe.
class MemoryStore final : public Store {
 public:
  /// `now`: the clock by which metrics age.
  explicit MemoryStore(std::function<core::Time()> now = [] {
    return std::chrono::floor<core::Millis>(std::chrono::system_clock::now());
  });

  std::vector<std::int64_t> append(std::span<const Commit> commits) override;
  std::optional<core::JobId> find_request(const std::string& request_id) override;
  core::JobId next_job_id() override;
  std::optional<core::Job> load(core::JobId id) override;
  std::optional<std::string> spec_json(core::JobId id) override;
  std::vector<core::Job> load_open() override;
  std::vector<JobRow> list(const ListFilter& filter) override;
  std::int64_t count(std::span<const core::JobState> states, const std::string& sweep) override;
  std::vector<StoredEvent> node_losses(core::Time since, std::uint32_t limit) override;
  std::vector<StoredEvent> events(core::JobId job, std::int64_t after_id, std::uint32_t limit) override;
  std::int64_t last_event_id() override;
  Totals totals(std::int64_t after_event, std::uint32_t most) override;
  std::vector<PendingAction> pending_actions() override;
  void set_actions(std::span<const std::int64_t> action_ids, ActionState state) override;
  void set_launching(std::span<const LaunchingAction> actions) override;
  void add_metrics(std::span<const MetricRow> rows, std::span<const DeclaredSeries> declared) override;
  std::vector<StepRow> metrics(core::JobId job, core::AttemptNumber attempt, core::AttemptNumber after_attempt,
                               core::Step after_step, std::uint32_t limit) override;
  Thinned thinned(const ThinRequest& request) override;
  std::vector<SeriesRow> series(core::JobId job) override;
  std::uint32_t remove_metrics(core::JobId job, std::uint32_t most) override;
  std::int64_t metrics_left_out(core::JobId job) override;
  bool age_metrics(const MetricsKeep& keep, std::uint32_t most) override;
  std::optional<MetricRow> newest_metric(core::JobId job) override;
  std::vector<PartitionRow> partitions() override;
  void change_partitions(std::span<const AuditRow> changes) override;
  std::vector<AuditRow> audit(std::int64_t before_id, const std::string& partition, std::uint32_t limit) override;
  std::optional<core::Drain> drain() override;
  void change_drain(const std::optional<core::Drain>& drain, const std::string& user, core::Time at) override;
  std::string secret() override;
  std::string place() override;
  void settle(const std::string& place, bool new_secret) override;
  std::int64_t schema_version() override;

  /// While set, every write throws the error, as with a full disk.
  void fail_writes(std::optional<Error> error);
  /// While true, writes block and reads do not, as with a disk that hangs.
  void hold_writes(bool hold);

 private:
  struct Entry {
    core::Job job;
    std::string spec_json;
  };
  using MetricKey = std::tuple<core::JobId, core::AttemptNumber, core::Step, core::RankNumber>;
  /// The parts of an attempt that have aged out. The rows stay here, and are left out of answers.
  struct Ages {
    core::Step newest = -1;
    core::Step rank_rows_from = std::numeric_limits<core::Step>::min();
    core::Step step_rows_from = std::numeric_limits<core::Step>::min();
    std::map<std::int64_t, core::Step> hours = {};  // the newest step before each hour with rows
    std::set<std::int64_t> summed = {};             // hours without rows of ranks
    std::int64_t left_out = 0;
  };

  SeriesRow* series_of(core::JobId job, const spec::Series& series, bool declares);
  void add_values(MetricRow& stored, const MetricRow& row);
  void combine_values(StepRow& step) const;
  bool takes(const MetricRow& row);
  bool is_over(core::JobId job, core::AttemptNumber attempt) const;
  void note_hour(const MetricRow& row);
  static core::Step last_step_of(const Ages& ages, std::int64_t hour);
  std::vector<StepRow> steps_of(core::JobId job, core::AttemptNumber attempt, core::AttemptNumber after_attempt,
                                core::Step after_step, std::uint32_t limit) const;

  void wait_while_held();
  void check(std::span<const Commit> commits) const;
  std::int64_t add(const Commit& commit);

  std::mutex held_mutex_;
  std::condition_variable let_go_;
  bool held_ = false;
  std::mutex mutex_;
  std::optional<Error> failure_;
  std::map<core::JobId, Entry> jobs_;
  std::map<std::string, core::JobId> requests_;
  std::vector<StoredEvent> events_;  // id is the index plus one
  std::map<std::int64_t, PendingAction> actions_;
  std::int64_t last_action_id_ = 0;
  const std::function<core::Time()> now_;
  std::map<MetricKey, MetricRow> metrics_;
  std::map<std::pair<core::JobId, core::AttemptNumber>, Ages> ages_;
  std::set<MetricKey> aged_;                              // rows of ranks that have aged out
  std::map<core::JobId, std::vector<SeriesRow>> series_;  // attempt 0: no value yet
  std::map<std::string, std::string> partitions_;
  std::vector<AuditRow> audit_;  // id is the index plus one
  std::optional<core::Drain> drain_;
  std::string secret_;
  std::string place_;
};

}  // namespace store
