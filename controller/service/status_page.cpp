#include "controller/service/status_page.h"

#include <unistd.h>

#include <array>
#include <filesystem>

#include "controller/common/clock.h"
#include "controller/core/core_text.h"

namespace service {
namespace {

namespace v1 = muster::v1;

constexpr core::Millis kProbeMargin{100};

}  // namespace

void StatusPage::set_dashboard(const std::string& url) {
  std::lock_guard lock(mutex_);
  dashboard_ = url;
}

void StatusPage::look_at_store() {
  constexpr std::array kActive = {core::JobState::kRunning, core::JobState::kStopping};
  Counted now{parts_.store.count({}), parts_.store.count(kActive), parts_.store.last_event_id(), 0};
  std::error_code error;
  const auto space = std::filesystem::space(parts_.data.root(), error);
  if (!error) now.free_bytes = static_cast<std::int64_t>(space.available);
  if (parts_.options.problems) now.problems = parts_.options.problems();
  std::lock_guard lock(mutex_);
  counted_ = now;
}

v1::StatusResponse StatusPage::get() {
  v1::StatusResponse out;
  out.set_version(parts_.options.version);
  out.set_started_at(common::time_text(started_at_));
  out.set_pid(::getpid());
  out.set_data_folder(parts_.data.root().string());
  out.set_schema_version(schema_version_);
  out.set_executor(parts_.executor.name());
  for (const auto& name : parts_.executor.names()) out.add_executors(name);
  if (const auto trouble = parts_.executor.trouble()) {
    out.set_scheduler_problem(executors::unreachable_text(*trouble));
  }
  {
    std::lock_guard lock(mutex_);
    out.set_dashboard_url(dashboard_);
  }
  if (!watched_.hearing.stuck_since()) watched_.probe.ask_and_wait(common::Hearing::kStuckAfter + kProbeMargin);
  const auto problem = parts_.event_log.problem();
  out.set_store_problem(problem.empty() ? watched_.metrics.problem() : problem);
  // While the disk stands still, the status must not ask anything that waits for it.
  if (!watched_.hearing.stuck_since()) look_at_store();
  {
    std::lock_guard lock(mutex_);
    out.set_jobs_total(counted_.jobs);
    out.set_jobs_running(counted_.running);
    out.set_events_total(counted_.events);
    out.set_data_free_bytes(counted_.free_bytes);
    for (const auto& text : counted_.problems) out.add_problems(text);
  }
  for (const auto& text : parts_.options.notes) out.add_notes(text);
  *out.mutable_drain() = watched_.draining.view(parts_.event_log);
  if (const auto order = watched_.draining.order()) {
    out.add_notes("no attempt starts: " + core::drain_text(*order) + "; to let jobs start: muster admin resume");
  }
  out.set_overload(watched_.pace.problem());
  out.set_heartbeat_floor_ms(watched_.pace.floor().count());
  out.set_heartbeat_lag_ms(watched_.reading.lag().count());
  out.set_rank_streams(static_cast<std::int64_t>(watched_.streams.open_now()));
  out.set_stream_heartbeats_total(static_cast<std::int64_t>(watched_.streams.beats()));
  for (auto& text : parts_.partitions.problems()) out.add_partition_problems(std::move(text));
  return out;
}

}  // namespace service
