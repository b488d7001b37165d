#include "http/metrics_page.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <vector>

#include "core/job.h"
#include "service/controller.h"

namespace http {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

/// A metric for each value of the label; `label` null: a lone metric.
template <typename Value>
MetricFamily family(const char* name, const char* help, MetricType type, const char* label,
                    const std::map<std::string, Value>& values) {
  MetricFamily out{name, help, type, {}};
  for (const auto& [is, value] : values) {
    auto& metric = out.metric.emplace_back();
    if (label != nullptr) metric.label.push_back({label, is});
    (type == MetricType::Counter ? metric.counter.value : metric.gauge.value) = static_cast<double>(value);
  }
  return out;
}

MetricFamily single(const char* name, const char* help, MetricType type, double value) {
  return family<double>(name, help, type, nullptr, {{"", value}});
}

}  // namespace

std::string MetricsPage::text(service::Controller& controller) {
  const std::lock_guard lock(mutex_);
  auto totals = controller.totals(read_up_to_, kMaxEventsAScrape);
  for (const auto state : core::kAllJobStates) totals.jobs.try_emplace(std::string(to_string(state)), 0);
  for (const auto& [type, count] : totals.events) events_by_type_[type] += count;
  read_up_to_ = totals.last_event;
  const auto status = controller.status();
  const std::vector<MetricFamily> families = {
      family("muster_jobs", "Jobs by state.", MetricType::Gauge, "state", totals.jobs),
      family("muster_events_total", "Events stored, by type.", MetricType::Counter, "type", events_by_type_),
      family("muster_attempts_ended_total", "Attempts that ended, by cause.", MetricType::Counter, "cause",
             totals.attempts_ended),
      single("muster_store_writable", "1 if the store takes writes.", MetricType::Gauge,
             status.store_problem().empty() ? 1 : 0),
      single("muster_data_free_bytes", "Free space where the store lies.", MetricType::Gauge,
             static_cast<double>(status.data_free_bytes())),
      single("muster_overloaded", "1 if heartbeats are read late, or were a moment ago.", MetricType::Gauge,
             status.overload().empty() ? 0 : 1),
      single("muster_heartbeat_lag_seconds", "Between the arrival of a heartbeat and its reading, as measured last.",
             MetricType::Gauge, static_cast<double>(status.heartbeat_lag_ms()) / 1000),
      single("muster_heartbeat_floor_seconds",
             "No rank is asked for heartbeats more often than this; 0: as often as the jobs say.", MetricType::Gauge,
             static_cast<double>(status.heartbeat_floor_ms()) / 1000),
      single("muster_rank_streams", "Ranks that are connected.", MetricType::Gauge,
             static_cast<double>(status.rank_streams())),
      single("muster_heartbeats_total", "Heartbeats that came on streams since musterd started.", MetricType::Counter,
             static_cast<double>(status.stream_heartbeats_total())),
      single("muster_http_requests_total", "HTTP requests answered since musterd started.", MetricType::Counter,
             static_cast<double>(requests.load())),
      single("muster_http_streams", "Event streams open now.", MetricType::Gauge, static_cast<double>(streams.load())),
  };
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace http
