#include "controller/admission/admission.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "controller/core/core_text.h"
#include "spec/jobfile/job_keys.h"
#include "spec/jobfile/script_job.h"

namespace admission {
namespace {

std::optional<common::Wait> after(const core::Job& job) {
  const auto other = std::ranges::find_if(job.after, [](const core::Dependency& one) { return !one.met; });
  if (!is_idle(job) || other == job.after.end()) return std::nullopt;
  return common::Wait{job.reason, std::string(common::kStartsByItself) + " What it waits for: muster why " +
                                      std::to_string(other->job)};
}

/// Its attempt runs here, and was started by a muster that gave none a share, or asks for nothing.
bool is_without_share(const core::Job& job) {
  const auto* attempt = job.current();
  return attempt != nullptr && attempt->state != core::AttemptState::kEnded && attempt->started_at &&
         !attempt->scheduler_job && !attempt->share;
}

}  // namespace

std::optional<common::Wait> wait_for_release(const core::Job& job) {
  if (!job.held) return std::nullopt;
  return common::Wait{job.reason, "Release it when it may start: muster release " + std::to_string(job.id)};
}

common::Wait wait_for_backoff(const core::Job& job) {
  return {job.reason,
          std::string(common::kStartsByItself) + " To start it at once: muster requeue " + std::to_string(job.id),
          job.next_attempt_at};
}

common::Wait wait_for_resume(const core::Drain& drain) {
  return {"musterd starts no attempt: it is " + core::drain_text(drain),
          "It starts when an admin says: muster admin resume"};
}

std::optional<common::Wait> Admission::why_not(const core::Job& job, core::Time now) {
  if (!is_idle(job) && job.state != core::JobState::kQueued) return std::nullopt;
  // Neither has limits that are worth reading.
  const bool decided = job.held || !job.dependencies_met();
  const auto limits = decided ? std::vector<Limit>{} : this->limits(job);
  const auto need = decided ? executors::MachineNeed{} : this->need(job.id);
  std::lock_guard lock(mutex_);
  if (auto wait = wait_before_machine(job, now, limits)) return wait;
  if (!room(job, need)) return machine_.why(need, place(job.id));
  return retry(job.id, false);
}

std::optional<common::Wait> Admission::enter(const core::Job& job, const std::vector<Limit>& limits) {
  const auto need = this->need(job.id);
  std::lock_guard lock(mutex_);
  auto wait = wait_before_machine(job, parts_.clock.wall(), limits);
  // Only a job that waits for nothing else has a place in the queue.
  machine_.step_back(job.id);
  if (wait) return wait;
  auto share = room(job, need);
  if (!share) {
    machine_.line_up(job.id, need, place(job.id));
    return machine_.why(need, place(job.id));
  }
  if ((wait = retry(job.id, true))) return wait;
  ledger_.enter(job);
  machine_.enter(job, std::move(*share));
  return std::nullopt;
}

std::optional<common::Wait> Admission::wait_before_machine(const core::Job& job, core::Time now,
                                                           const std::vector<Limit>& limits) const {
  if (auto wait = wait_for_release(job)) return wait;
  if (auto wait = after(job)) return wait;
  if (auto wait = backoff(job, now)) return wait;
  if (const auto drain = parts_.drain ? parts_.drain() : std::nullopt) return wait_for_resume(*drain);
  return full(job, limits);
}

std::optional<core::Millis> Admission::next_by_time(core::Millis since) const {
  std::optional<core::Millis> next;
  std::lock_guard lock(mutex_);
  for (const auto& [job, start] : starts_) {
    for (const auto at : {start.due, start.again}) {
      if (at > since) next = std::min(next.value_or(at), at);
    }
  }
  return next;
}

executors::MachineWish wish_of(const muster::v1::JobSpec& spec) {
  if (jobfile::is_batch(spec)) {
    return {.ranks = 1,
            .cpus_of_rank = spec.resources().cpus_per_rank() * spec.resources().ranks_per_node(),
            .gpus_of_rank = jobfile::gpus_of_node(spec),
            .chooses_gpus = executors::chooses_gpus(spec.env())};
  }
  return {.ranks = spec.resources().ranks_per_node(),
          .cpus_of_rank = spec.resources().cpus_per_rank(),
          .gpus_of_rank = jobfile::gpus_of_rank(spec),
          .chooses_gpus = executors::chooses_gpus(spec.env())};
}

executors::MachineNeed Admission::need(core::JobId job) {
  {
    std::lock_guard lock(mutex_);
    const auto start = starts_.find(job);
    if (start != starts_.end() && start->second.need) return *start->second.need;
  }
  const auto spec = parts_.specs.get(job);
  if (spec == nullptr || is_for_slurm(*spec)) return {};
  std::lock_guard lock(mutex_);
  const auto found = executors::need_of(machine_.machine(), wish_of(*spec));
  if (const auto start = starts_.find(job); start != starts_.end()) start->second.need = found;
  return found;
}

std::optional<core::MachineShare> Admission::room(const core::Job& job, const executors::MachineNeed& need) const {
  if (need.empty()) return core::MachineShare{};
  if (auto has = machine_.share_of(job.id)) return has;
  return machine_.choose(need, place(job.id));
}

// The runner's clock cannot be set. Until the runner has seen that the attempt is to start, the job's own word counts.
std::optional<common::Wait> Admission::backoff(const core::Job& job, core::Time now) const {
  const auto start = starts_.find(job.id);
  const bool known = start != starts_.end();
  const bool over = known ? parts_.clock.monotonic() >= start->second.due : job.next_attempt_at <= now;
  if (job.state != core::JobState::kWaiting || !job.next_attempt_at || over) return std::nullopt;
  return wait_for_backoff(job);
}

std::optional<common::Wait> Admission::full(const core::Job& job, const std::vector<Limit>& limits) const {
  const auto* limit = ledger_.has_slots(job.id) ? nullptr : ledger_.full(limits);
  if (limit == nullptr) return std::nullopt;
  return common::Wait{(job.state == core::JobState::kQueued ? "released, and " : "") + limit->why, limit->action};
}

std::optional<common::Wait> Admission::retry(core::JobId job, bool entering) const {
  const auto start = starts_.find(job);
  if (start == starts_.end() || !start->second.later) return std::nullopt;
  if (entering && parts_.clock.monotonic() >= start->second.again) return std::nullopt;
  const auto& later = *start->second.later;
  if (later.why.empty()) return common::Wait{};  // its executor tells why
  return common::Wait{"Not started yet: " + later.why, later.remedy};
}

std::vector<Limit> Admission::limits(const core::Job& job) {
  const auto policies = parts_.policies();
  if (job.sweep.parallel == 0 && policies->empty()) return {};
  const auto spec = parts_.specs.get(job.id);
  if (spec == nullptr) return {};
  if (!policies->empty()) find_partitions();
  return limits_of(job, *spec, is_for_slurm(*spec) ? policies.get() : nullptr);
}

void Admission::find_partitions() {
  std::set<core::JobId> wanted;
  {
    std::lock_guard lock(mutex_);
    wanted = ledger_.without_partition();
  }
  for (const auto job : wanted) {
    try {
      const auto spec = parts_.specs.get(job);
      const auto partition =
          spec != nullptr && is_for_slurm(*spec) ? jobfile::slurm_text(*spec, "partition") : std::string();
      std::lock_guard lock(mutex_);
      ledger_.set_partition(job, partition);
    } catch (const std::exception& error) {
      spdlog::debug("job {}: which partition it goes to cannot be read: {}", job, error.what());
    }
  }
}

void Admission::follow(const core::Job& job) {
  std::lock_guard lock(mutex_);
  ledger_.follow(job);
  machine_.follow(job);
  tell_doubts();
}

void Admission::tell_doubts() {
  for (const auto& [job, given] : machine_.in_doubt()) {
    if (told_doubts_.insert(job).second) spdlog::warn("{}", machine_.doubt_text(job));
  }
}

void Admission::look_at_machine(const std::vector<std::shared_ptr<const core::Job>>& open) {
  auto machine = parts_.executor.own_machine();
  std::vector<std::pair<std::shared_ptr<const core::Job>, executors::MachineNeed>> older;
  for (const auto& job : open) {
    if (is_without_share(*job)) older.emplace_back(job, need(job->id));
  }
  std::lock_guard lock(mutex_);
  machine_.change(std::move(machine));
  for (const auto& [job, need] : older) machine_.keep_first(*job, need);
  tell_doubts();
}

void Admission::expect(const core::AttemptKey& key, core::Millis due) {
  std::lock_guard lock(mutex_);
  auto& start = starts_[key.job];
  start.attempt = key.number;
  // The first of several starts of one attempt has the place.
  start.place = std::min(start.place, next_place_++);
  start.due = due;
  start.later.reset();
  start.again = core::Millis(0);
}

void Admission::keep_slots(const core::Job& job, const std::optional<core::MachineShare>& share) {
  std::lock_guard lock(mutex_);
  ledger_.enter(job);
  // One of several starts of one attempt has the share.
  if (share) machine_.enter(job, *share);
  tell_doubts();
}

void Admission::put_off(core::JobId job, const executors::LaunchLater& later) {
  std::lock_guard lock(mutex_);
  auto& start = starts_[job];
  // Once, not at every try.
  if (!later.why.empty() && (!start.later || start.later->why != later.why)) {
    spdlog::warn("job {}: not started yet, and tried again: {}", job, later.why);
  }
  start.later = later;
  machine_.step_back(job);
  start.again = parts_.clock.monotonic() + later.pause;
}

void Admission::settle(core::JobId job) {
  std::lock_guard lock(mutex_);
  ledger_.settle(job);
  machine_.settle(job);
}

void Admission::forget(const core::AttemptKey& key) {
  std::lock_guard lock(mutex_);
  ledger_.settle(key.job);
  machine_.settle(key.job);
  machine_.step_back(key.job);
  const auto start = starts_.find(key.job);
  if (start != starts_.end() && start->second.attempt <= key.number) starts_.erase(start);
}

Count Admission::count(const std::string& partition, const std::string& user) {
  find_partitions();
  std::lock_guard lock(mutex_);
  const auto key = partition_key(partition, user);
  return user.empty() ? Count{.open = ledger_.open_below(key)} : ledger_.count(key);
}

void Admission::keep_first(const core::Job& job) {
  if (!is_without_share(job)) return;
  const auto need = this->need(job.id);
  std::lock_guard lock(mutex_);
  machine_.keep_first(job, need);
}

}  // namespace admission
