#include "tests/controller/store/memory_store.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "controller/store/codec.h"
#include "controller/store/sqlite_file.h"

namespace store {
namespace {

template <typename Number, typename Combine>
void combine(std::optional<Number>& into, const std::optional<Number>& other, Combine with) {
  if (other) into = into ? with(*into, *other) : *other;
}

/// Adds another rank's measurements. The values of series are combined by OverRanks.
void merge(StepRow& step, const MetricRow& row) {
  const auto most = [](auto a, auto b) { return std::max(a, b); };
  ++step.ranks;
  combine(step.row.step_ms, row.step_ms, most);
  combine(step.row.memory_bytes, row.memory_bytes, most);
  combine(step.row.memory_peak_bytes, row.memory_peak_bytes, most);
  combine(step.row.bytes_communicated, row.bytes_communicated, [](auto a, auto b) { return a + b; });
}

std::int64_t hour_since_1970(core::Time time) {
  return std::chrono::floor<std::chrono::hours>(time.time_since_epoch()).count();
}

/// Adds one step with all its values to `sink`, which has add(curve, Spot). `curve_of` gives the number of a series by
/// its name.
template <typename Sink, typename CurveOf>
void add_step(Sink& sink, const MetricRow& row, CurveOf curve_of) {
  const auto add = [&](std::int64_t curve, double value) { sink.add(curve, {row.step, row.at_ms, value}); };
  add(kStepsCurve, static_cast<double>(row.step));
  if (row.step_ms) add(kStepTimeCurve, *row.step_ms);
  if (row.memory_peak_bytes) add(kPeakMemoryCurve, static_cast<double>(*row.memory_peak_bytes));
  if (row.bytes_communicated) add(kBytesCurve, static_cast<double>(*row.bytes_communicated));
  for (const auto& value : row.values) add(curve_of(value.series), value.value);
}

}  // namespace

MemoryStore::MemoryStore(std::function<core::Time()> now) : now_(std::move(now)), secret_(random_secret()) {}

void MemoryStore::fail_writes(std::optional<Error> error) {
  std::lock_guard lock(mutex_);
  failure_ = std::move(error);
}

void MemoryStore::hold_writes(bool hold) {
  {
    std::lock_guard lock(held_mutex_);
    held_ = hold;
  }
  let_go_.notify_all();
}

void MemoryStore::wait_while_held() {
  std::unique_lock lock(held_mutex_);
  let_go_.wait(lock, [this] { return !held_; });
}

void MemoryStore::check(std::span<const Commit> commits) const {
  if (failure_) throw *failure_;
  std::map<core::JobId, std::int64_t> versions;
  std::set<std::string> requests;
  for (const Commit& commit : commits) {
    const core::Job& job = commit.applied->job;
    const auto known = jobs_.find(job.id);
    auto& version = versions.try_emplace(job.id, known == jobs_.end() ? 0 : known->second.job.version).first->second;
    require_next(job, version);
    version = job.version;
    if (commit.request_id.empty()) continue;
    if (requests_.contains(commit.request_id) || !requests.insert(commit.request_id).second) {
      throw request_taken(commit.request_id);
    }
  }
}

std::int64_t MemoryStore::add(const Commit& commit) {
  const core::Job& job = commit.applied->job;
  Entry& entry = jobs_[job.id];
  entry.job = job;
  if (job.version == 1) entry.spec_json = commit.spec_json;
  if (job.removed_at) entry.spec_json = "{}";
  if (!commit.request_id.empty()) requests_[commit.request_id] = job.id;
  const auto id = static_cast<std::int64_t>(events_.size() + 1);
  StoredEvent stored{id, job.id, job.version, commit.event, job.state, commit.applied->text, ""};
  stored.payload = encode_event(commit.event.body);
  stored.event.body = decode_event(type_name(commit.event.body), stored.payload);
  events_.push_back(std::move(stored));
  for (const core::Action& action : commit.applied->actions) {
    ++last_action_id_;
    actions_[last_action_id_] = {last_action_id_, job.id, action};
  }
  return id;
}

std::vector<std::int64_t> MemoryStore::append(std::span<const Commit> commits) {
  wait_while_held();
  std::lock_guard lock(mutex_);
  check(commits);
  std::vector<std::int64_t> ids;
  for (const Commit& commit : commits) ids.push_back(add(commit));
  return ids;
}

std::optional<core::JobId> MemoryStore::find_request(const std::string& request_id) {
  std::lock_guard lock(mutex_);
  const auto found = requests_.find(request_id);
  return found == requests_.end() ? std::nullopt : std::optional(found->second);
}

core::JobId MemoryStore::next_job_id() {
  std::lock_guard lock(mutex_);
  return jobs_.empty() ? 1 : jobs_.rbegin()->first + 1;
}

std::optional<core::Job> MemoryStore::load(core::JobId id) {
  std::lock_guard lock(mutex_);
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? std::nullopt : std::optional(found->second.job);
}

std::optional<std::string> MemoryStore::spec_json(core::JobId id) {
  std::lock_guard lock(mutex_);
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? std::nullopt : std::optional(found->second.spec_json);
}

std::vector<core::Job> MemoryStore::load_open() {
  std::lock_guard lock(mutex_);
  std::vector<core::Job> open;
  for (const auto& [id, entry] : jobs_) {
    if (!is_ended(entry.job.state)) open.push_back(entry.job);
  }
  return open;
}

std::vector<JobRow> MemoryStore::list(const ListFilter& filter) {
  std::lock_guard lock(mutex_);
  std::vector<JobRow> rows;
  for (auto entry = jobs_.rbegin(); entry != jobs_.rend() && rows.size() < filter.limit; ++entry) {
    const core::Job& job = entry->second.job;
    const bool wanted = filter.states.empty() || std::ranges::find(filter.states, job.state) != filter.states.end();
    const bool of_sweep = filter.sweep.empty() || job.sweep.sweep == filter.sweep;
    const bool asked = filter.ids.empty() || std::ranges::find(filter.ids, job.id) != filter.ids.end();
    if (wanted && of_sweep && asked && !job.removed_at && (filter.before == 0 || job.id < filter.before))
      rows.push_back(row_of(job));
  }
  return rows;
}

std::vector<StoredEvent> MemoryStore::node_losses(core::Time since, std::uint32_t limit) {
  std::lock_guard lock(mutex_);
  std::vector<StoredEvent> found;
  for (const StoredEvent& event : events_) {
    const bool lost = std::holds_alternative<core::NodeLost>(event.event.body);
    if (lost && event.event.at >= since && found.size() < limit) found.push_back(event);
  }
  return found;
}

std::int64_t MemoryStore::count(std::span<const core::JobState> states, const std::string& sweep) {
  std::lock_guard lock(mutex_);
  return std::ranges::count_if(jobs_, [&](const auto& entry) {
    if (entry.second.job.removed_at) return false;
    if (!sweep.empty() && entry.second.job.sweep.sweep != sweep) return false;
    return states.empty() || std::ranges::find(states, entry.second.job.state) != states.end();
  });
}

std::vector<StoredEvent> MemoryStore::events(core::JobId job, std::int64_t after_id, std::uint32_t limit) {
  std::lock_guard lock(mutex_);
  std::vector<StoredEvent> found;
  const auto begin = static_cast<std::size_t>(std::max<std::int64_t>(after_id, 0));
  for (std::size_t i = begin; i < events_.size() && found.size() < limit; ++i) {
    if (job == 0 || events_[i].job == job) found.push_back(events_[i]);
  }
  return found;
}

std::int64_t MemoryStore::last_event_id() {
  std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(events_.size());
}

Totals MemoryStore::totals(std::int64_t after_event, std::uint32_t most) {
  std::lock_guard lock(mutex_);
  Totals totals;
  for (const auto& [id, entry] : jobs_) {
    if (!entry.job.removed_at) ++totals.jobs[std::string(to_string(entry.job.state))];
    for (const core::Attempt& attempt : entry.job.attempts) {
      if (attempt.state == core::AttemptState::kEnded) ++totals.attempts_ended[std::string(to_string(attempt.cause))];
    }
  }
  totals.last_event = after_event;
  for (auto i = static_cast<std::size_t>(std::max<std::int64_t>(after_event, 0)); i < events_.size(); ++i) {
    if (most-- == 0) break;
    ++totals.events[std::string(type_name(events_[i].event.body))];
    totals.last_event = events_[i].id;
  }
  return totals;
}

std::vector<PendingAction> MemoryStore::pending_actions() {
  std::lock_guard lock(mutex_);
  std::vector<PendingAction> pending;
  for (const auto& [id, action] : actions_) pending.push_back(action);
  return pending;
}

void MemoryStore::set_actions(std::span<const std::int64_t> action_ids, ActionState state) {
  wait_while_held();
  std::lock_guard lock(mutex_);
  if (failure_) throw *failure_;
  for (const auto id : action_ids) {
    const auto action = actions_.find(id);
    if (action == actions_.end()) continue;
    action->second.state = state;
    if (state == ActionState::kPending) action->second.share.reset();
    if (state == ActionState::kDone) actions_.erase(action);
  }
}

void MemoryStore::set_launching(std::span<const LaunchingAction> actions) {
  wait_while_held();
  std::lock_guard lock(mutex_);
  if (failure_) throw *failure_;
  for (const auto& one : actions) {
    const auto action = actions_.find(one.id);
    if (action == actions_.end()) continue;
    action->second.state = ActionState::kLaunching;
    action->second.share = one.share;
  }
}

SeriesRow* MemoryStore::series_of(core::JobId job, const spec::Series& series, bool declares) {
  auto& all = series_[job];
  const auto found = std::ranges::find(all, series.name, [](const SeriesRow& row) { return row.series.name; });
  if (found == all.end()) {
    if (all.size() >= spec::kMostSeries) return nullptr;
    return &all.emplace_back(SeriesRow{series, 0, -1, 0});
  }
  if (declares) found->series = series;
  return &*found;
}

void MemoryStore::add_values(MetricRow& stored, const MetricRow& row) {
  for (const auto& value : row.values) {
    auto* series = series_of(row.job, spec::undeclared_series(value.series), false);
    if (series == nullptr) continue;
    if (series->series.over_ranks == spec::OverRanks::kRank0 && row.rank != 0) continue;
    if (!value_of(stored, value.series)) stored.values.push_back(value);
    if (std::pair(row.attempt, row.step) > std::pair(series->attempt, series->step)) {
      series->attempt = row.attempt;
      series->step = row.step;
    }
  }
}

void MemoryStore::add_metrics(std::span<const MetricRow> rows, std::span<const DeclaredSeries> declared) {
  wait_while_held();
  std::lock_guard lock(mutex_);
  if (failure_) throw *failure_;
  for (const auto& one : declared) series_of(one.job, one.series, true);
  for (const MetricRow& row : rows) {
    if (!takes(row)) {
      ++ages_[{row.job, row.attempt}].left_out;
      continue;
    }
    auto measured = row;
    measured.values.clear();
    const auto [place, is_new] = metrics_.try_emplace({row.job, row.attempt, row.step, row.rank}, std::move(measured));
    const auto values_before = place->second.values.size();
    add_values(place->second, row);
    if (is_new || place->second.values.size() > values_before) note_hour(row);
  }
}

bool MemoryStore::takes(const MetricRow& row) {
  const auto& ages = ages_[{row.job, row.attempt}];
  if (row.step < ages.step_rows_from) return false;
  if (row.step >= ages.rank_rows_from) return true;
  bool has_aged = false;
  for (auto at = metrics_.lower_bound({row.job, row.attempt, row.step, 0});
       at != metrics_.end() && at->second.job == row.job && at->second.attempt == row.attempt &&
       at->second.step == row.step;
       ++at) {
    has_aged = has_aged || aged_.contains(at->first);
  }
  return !has_aged || (row.rank == 0 && !metrics_.contains({row.job, row.attempt, row.step, 0}));
}

void MemoryStore::note_hour(const MetricRow& row) {
  auto& ages = ages_[{row.job, row.attempt}];
  const auto newest = ages.hours.empty() ? -1 : ages.hours.rbegin()->first;
  const auto hour = hour_since_1970(now_());
  if (hour > newest) ages.hours.emplace(hour, ages.newest);
  ages.newest = std::max(ages.newest, row.step);
}

core::Step MemoryStore::last_step_of(const Ages& ages, std::int64_t hour) {
  const auto next = ages.hours.upper_bound(hour);
  return next == ages.hours.end() ? ages.newest : next->second;
}

bool MemoryStore::age_metrics(const MetricsKeep& keep, std::uint32_t /*most*/) {
  constexpr core::Step kLateSteps = 128;  // as MetricBuckets::kLateSteps: these have no bucket yet
  std::lock_guard lock(mutex_);
  if (failure_) throw *failure_;
  bool any = false;
  for (auto& [attempt, ages] : ages_) {
    for (auto hour = ages.hours.begin(); hour != ages.hours.end();) {
      const auto last = last_step_of(ages, hour->first);
      if (hour->first < hour_since_1970(now_() - keep.rank_rows) && ages.summed.insert(hour->first).second) {
        ages.rank_rows_from = std::max(ages.rank_rows_from, last + 1);
        for (const auto& [key, row] : metrics_) {
          if (std::pair(row.job, row.attempt) == attempt && row.step <= last) aged_.insert(key);
        }
        any = true;
      }
      if (hour->first >= hour_since_1970(now_() - keep.step_rows)) {
        ++hour;
        continue;
      }
      const bool is_newest = std::next(hour) == ages.hours.end();
      const bool ends = is_newest && is_over(attempt.first, attempt.second);
      const auto settled = std::max<core::Step>(0, ages.newest + (ends ? kWidths[0] : 1 - kLateSteps));
      const auto end = (ends ? settled : std::min(last + 1, settled)) / kWidths[0] * kWidths[0];
      if (end > 0) ages.step_rows_from = std::max(ages.step_rows_from, end);
      ages.summed.erase(hour->first);
      if (is_newest && !ends) ages.hours.emplace(hour_since_1970(now_()), hour->second);
      hour = ages.hours.erase(hour);
      any = true;
    }
  }
  return any;
}

bool MemoryStore::is_over(core::JobId job, core::AttemptNumber attempt) const {
  const auto found = jobs_.find(job);
  if (found == jobs_.end() || attempt < 1 || attempt > found->second.job.attempts.size()) return false;
  return found->second.job.attempts[attempt - 1].state == core::AttemptState::kEnded;
}

std::int64_t MemoryStore::metrics_left_out(core::JobId job) {
  std::lock_guard lock(mutex_);
  std::int64_t left_out = 0;
  for (const auto& [attempt, ages] : ages_) left_out += attempt.first == job ? ages.left_out : 0;
  return left_out;
}

/// Combines the values of all ranks' rows of this step, in the order of the job's series.
void MemoryStore::combine_values(StepRow& step) const {
  step.row.values.clear();
  const auto all = series_.find(step.row.job);
  if (all == series_.end()) return;
  for (const auto& known : all->second) {
    RankValues values;
    for (auto at = metrics_.lower_bound({step.row.job, step.row.attempt, step.row.step, 0});
         at != metrics_.end() && at->second.job == step.row.job && at->second.attempt == step.row.attempt &&
         at->second.step == step.row.step;
         ++at) {
      if (const auto value = value_of(at->second, known.series.name)) values.add(at->second.rank, *value);
    }
    if (const auto value = values.over(known.series.over_ranks)) step.row.values.push_back({known.series.name, *value});
  }
}

std::vector<StepRow> MemoryStore::metrics(core::JobId job, core::AttemptNumber attempt,
                                          core::AttemptNumber after_attempt, core::Step after_step,
                                          std::uint32_t limit) {
  std::lock_guard lock(mutex_);
  auto steps = steps_of(job, attempt, after_attempt, after_step, std::numeric_limits<std::uint32_t>::max());
  const auto from = [&](const MetricRow& row) { return ages_[{job, row.attempt}].step_rows_from; };
  std::erase_if(steps, [&](const StepRow& step) { return step.row.step < from(step.row); });
  if (steps.size() > limit) steps.resize(limit);
  core::AttemptNumber told = 0;
  for (auto& [row, ranks, aged] : steps) {
    if (std::exchange(told, row.attempt) == row.attempt || from(row) <= 0) continue;
    if (row.attempt != after_attempt || after_step + 1 < from(row)) aged = from(row);
  }
  return steps;
}

std::vector<StepRow> MemoryStore::steps_of(core::JobId job, core::AttemptNumber attempt,
                                           core::AttemptNumber after_attempt, core::Step after_step,
                                           std::uint32_t limit) const {
  std::vector<StepRow> steps;
  for (auto found = metrics_.lower_bound({job, after_attempt, after_step + 1, 0});
       found != metrics_.end() && found->second.job == job; ++found) {
    const MetricRow& row = found->second;
    if (attempt != 0 && row.attempt != attempt) continue;
    if (row.rank == 0) {
      if (steps.size() == limit) break;
      steps.push_back({row, 1});
    } else if (!steps.empty() && steps.back().row.attempt == row.attempt && steps.back().row.step == row.step) {
      merge(steps.back(), row);
    }
  }
  for (auto& step : steps) combine_values(step);
  return steps;
}

Thinned MemoryStore::thinned(const ThinRequest& request) {
  std::lock_guard lock(mutex_);
  std::vector<std::pair<std::int64_t, std::string>> names;
  if (const auto known = series_.find(request.job); known != series_.end()) {
    for (const auto& row : known->second) {
      names.emplace_back(kFirstSeriesCurve + static_cast<std::int64_t>(names.size()), row.series.name);
    }
  }
  const auto curve_of = [&](const std::string& name) {
    return std::ranges::find(names, name, &std::pair<std::int64_t, std::string>::second)->first;
  };
  const auto steps = steps_of(request.job, 0, 0, -1, std::numeric_limits<std::uint32_t>::max());
  std::vector<AttemptSteps> attempts;
  for (const auto& [row, ranks, aged] : steps) {
    if (attempts.empty() || attempts.back().attempt != row.attempt) {
      const auto rows_from = ages_[{row.job, row.attempt}].step_rows_from;
      attempts.push_back({row.attempt, row.step, 0, std::max<core::Step>(0, rows_from)});
    }
    attempts.back().last = row.step;
  }
  Thinner thinner;
  for (const auto& stretch : stretches_of(attempts, request, names.size())) {
    thinner.begin(stretch);
    for (const auto& [row, ranks, aged] : steps) {
      const bool inside = row.step >= stretch.from && row.step < stretch.end;
      if (row.attempt == stretch.attempt && inside) add_step(thinner, row, curve_of);
    }
  }
  return std::move(thinner).finish(std::move(attempts), names);
}

std::uint32_t MemoryStore::remove_metrics(core::JobId job, std::uint32_t most) {
  std::lock_guard lock(mutex_);
  if (failure_) throw *failure_;
  std::uint32_t removed = 0;
  for (auto at = metrics_.lower_bound({job, 0, 0, 0});
       at != metrics_.end() && at->second.job == job && removed < most;) {
    at = metrics_.erase(at);
    ++removed;
  }
  if (removed < most) {
    series_.erase(job);
    std::erase_if(ages_, [&](const auto& one) { return one.first.first == job; });
    std::erase_if(aged_, [&](const auto& key) { return std::get<0>(key) == job; });
  }
  return removed;
}

std::optional<MetricRow> MemoryStore::newest_metric(core::JobId job) {
  std::lock_guard lock(mutex_);
  for (auto after = metrics_.lower_bound({job + 1, 0, 0, 0}); after != metrics_.begin();) {
    const MetricRow& row = (--after)->second;
    if (row.job != job) break;
    if (row.rank != 0) continue;
    if (!aged_.contains({job, row.attempt, row.step, 0})) return row;
    return steps_of(job, row.attempt, row.attempt, row.step - 1, 1).front().row;
  }
  return std::nullopt;
}

std::vector<SeriesRow> MemoryStore::series(core::JobId job) {
  std::lock_guard lock(mutex_);
  std::vector<SeriesRow> found;
  if (const auto all = series_.find(job); all != series_.end()) found = all->second;
  std::erase_if(found, [](const SeriesRow& row) { return row.attempt == 0; });
  for (auto& row : found) {
    StepRow step{{.job = job, .attempt = row.attempt, .step = row.step}, 0};
    combine_values(step);
    row.value = value_of(step.row, row.series.name).value_or(0);
  }
  return found;
}

std::vector<PartitionRow> MemoryStore::partitions() {
  std::lock_guard lock(mutex_);
  std::vector<PartitionRow> rows;
  for (const auto& [name, policy] : partitions_) rows.push_back({name, policy});
  return rows;
}

void MemoryStore::change_partitions(std::span<const AuditRow> changes) {
  wait_while_held();
  std::lock_guard lock(mutex_);
  if (failure_) throw *failure_;
  for (const AuditRow& change : changes) {
    audit_.push_back(change);
    audit_.back().id = static_cast<std::int64_t>(audit_.size());
    if (change.after.empty()) {
      partitions_.erase(change.partition);
    } else {
      partitions_[change.partition] = change.after;
    }
  }
}

std::vector<AuditRow> MemoryStore::audit(std::int64_t before_id, const std::string& partition, std::uint32_t limit) {
  std::lock_guard lock(mutex_);
  std::vector<AuditRow> rows;
  for (auto row = audit_.rbegin(); row != audit_.rend() && rows.size() < limit; ++row) {
    const bool wanted = partition.empty() || row->partition == partition;
    if (wanted && (before_id == 0 || row->id < before_id)) rows.push_back(*row);
  }
  return rows;
}

std::optional<core::Drain> MemoryStore::drain() {
  std::lock_guard lock(mutex_);
  return drain_;
}

void MemoryStore::change_drain(const std::optional<core::Drain>& drain, const std::string& user, core::Time at) {
  wait_while_held();
  std::lock_guard lock(mutex_);
  if (failure_) throw *failure_;
  audit_.push_back(drain_change(drain_, drain, user, at));
  audit_.back().id = static_cast<std::int64_t>(audit_.size());
  drain_ = drain;
}

std::string MemoryStore::secret() {
  std::lock_guard lock(mutex_);
  return secret_;
}

std::string MemoryStore::place() {
  std::lock_guard lock(mutex_);
  return place_;
}

void MemoryStore::settle(const std::string& place, bool new_secret) {
  std::lock_guard lock(mutex_);
  if (failure_) throw *failure_;
  place_ = place;
  if (new_secret) secret_ = random_secret();
}

std::int64_t MemoryStore::schema_version() {
  return static_cast<std::int64_t>(migrations().newest());
}

}  // namespace store
