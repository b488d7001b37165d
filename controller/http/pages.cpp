#include "controller/http/pages.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <nlohmann/json.hpp>

#include "controller/core/job.h"
#include "proto/json/proto_json.h"

namespace http {
namespace {

using nlohmann::ordered_json;
using prometheus::MetricFamily;
using prometheus::MetricType;

ordered_json to_json(const store::Curve& curve) {
  ordered_json attempts = ordered_json::array(), steps = attempts, times = attempts, values = attempts,
               lasts = attempts;
  for (const auto& [attempt, spot, is_last] : curve.points) {
    attempts.push_back(attempt);
    steps.push_back(spot.step);
    times.push_back(spot.at_ms);
    lasts.push_back(is_last ? 1 : 0);
    values.push_back(std::isfinite(spot.value) ? ordered_json(spot.value) : ordered_json());
  }
  return {{"name", curve.name},         {"values", curve.values},
          {"steps", curve.steps},       {"attempt", std::move(attempts)},
          {"step", std::move(steps)},   {"at_ms", std::move(times)},
          {"value", std::move(values)}, {"last", std::move(lasts)}};
}

ordered_json to_json(const std::vector<store::Curve>& curves) {
  ordered_json out = ordered_json::array();
  for (const auto& curve : curves) out.push_back(to_json(curve));
  return out;
}

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

template <typename Value>
MetricFamily single(const char* name, const char* help, Value value, MetricType type = MetricType::Gauge) {
  return family<Value>(name, help, type, nullptr, {{"", value}});
}

std::vector<std::string> problems_of(service::Controller& controller) {
  std::vector<std::string> problems;
  try {
    const auto status = controller.status();
    if (!status.store_problem().empty()) problems.emplace_back("the store takes no writes");
    if (!status.scheduler_problem().empty()) problems.emplace_back("the scheduler does not answer");
  } catch (const std::exception&) {
    problems.emplace_back("the store cannot be read");
  }
  return problems;
}

}  // namespace

ordered_json to_json(const store::Thinned& thinned) {
  ordered_json attempts = ordered_json::array();
  for (const auto& [attempt, first, last, rows_from] : thinned.attempts) {
    attempts.push_back(
        {{"attempt", attempt}, {"first_step", first}, {"last_step", last}, {"rows_from_step", rows_from}});
  }
  return {{"attempts", std::move(attempts)},
          {"bucket_steps", thinned.bucket_steps},
          {"series", to_json(thinned.series)},
          {"measures", to_json(thinned.measures)}};
}

ordered_json rank_page(const muster::v1::Job& job, const RankRange& range) {
  std::map<std::string, std::uint32_t> states;
  std::uint32_t total = 0, slow = 0;
  ordered_json ranks = ordered_json::array();
  const auto known = static_cast<std::uint32_t>(job.ranks_size());
  for (std::uint32_t number = 0; known > 0 && number < std::max(known, job.ranks_total()); ++number) {
    muster::v1::Rank missing;
    missing.set_rank(number);
    missing.set_state("missing");
    const auto& rank = number < known ? job.ranks(static_cast<int>(number)) : missing;
    ++states[rank.state()];
    slow += rank.has_slowness() ? 1 : 0;
    const bool wanted = range.show.empty() || (range.show == "slow" ? rank.has_slowness() : rank.state() == range.show);
    if (!wanted || total++ < range.from || ranks.size() >= range.limit) continue;
    ranks.push_back(proto::to_json(rank));
  }
  return {{"attempt", job.attempts_size() ? job.attempts().rbegin()->number() : 0},
          {"total", total},
          {"states", states},
          {"slow", slow},
          {"ranks", std::move(ranks)}};
}

std::string MetricsPage::text(service::Controller& controller) {
  const std::lock_guard lock(mutex_);
  auto totals = controller.totals(read_up_to_, kMaxEventsAScrape);
  for (const auto state : core::kAllJobStates) totals.jobs.try_emplace(std::string(to_string(state)), 0);
  for (const auto& [type, count] : totals.events) events_by_type_[type] += count;
  read_up_to_ = totals.last_event;
  const auto status = controller.status();
  const auto open = connections_->open();
  const std::map<std::string, std::size_t> connected = {
      {"stranger", open.strangers + open.waiting + open.asking}, {"person", open.people}, {"rank", open.ranks}};
  std::map<std::string, std::uint64_t> turned_away, crowds;
  for (const auto port : net::kAllPorts) {
    turned_away[net::name_of(port)] = connections_->crowd().total(port);
    crowds[net::name_of(port)] = connections_->crowd().is_at(port, net::Connections::Clock::now()) ? 1 : 0;
  }
  constexpr auto kCounter = MetricType::Counter, kGauge = MetricType::Gauge;
  const std::vector<MetricFamily> families = {
      family("muster_jobs", "Jobs by state.", kGauge, "state", totals.jobs),
      family("muster_events_total", "Events stored since musterd started, by type.", kCounter, "type", events_by_type_),
      family("muster_attempts_ended_total", "Attempts that ended, by cause.", kCounter, "cause", totals.attempts_ended),
      single("muster_store_writable", "1 if the store takes writes.", status.store_problem().empty() ? 1 : 0),
      single("muster_data_free_bytes", "Free space where the store lies.", status.data_free_bytes()),
      single("muster_overloaded", "1 if heartbeats are read late, or were a moment ago.",
             status.overload().empty() ? 0 : 1),
      single("muster_heartbeat_lag_seconds", "Between the arrival of a heartbeat and its reading, as measured last.",
             static_cast<double>(status.heartbeat_lag_ms()) / 1000),
      single("muster_heartbeat_floor_seconds",
             "No rank is asked for heartbeats more often than this; 0: as often as the jobs say.",
             static_cast<double>(status.heartbeat_floor_ms()) / 1000),
      single("muster_rank_streams", "Ranks that are connected.", status.rank_streams()),
      single("muster_heartbeats_total", "Heartbeats that came on streams since musterd started.",
             status.stream_heartbeats_total(), kCounter),
      family("muster_connections", "Open connections, by who has shown a token on them.", kGauge, "party", connected),
      family("muster_connections_turned_away_total",
             "Connections that were turned away before they reached a server, since musterd started.", kCounter, "port",
             turned_away),
      family("muster_crowd", "1 while strangers crowd at the port.", kGauge, "port", crowds),
      single("muster_http_requests_total", "HTTP requests answered since musterd started.", requests.load(), kCounter),
      single("muster_http_streams", "Event streams open now.", streams.load()),
  };
  return prometheus::TextSerializer().Serialize(families);
}

std::vector<std::string> HealthPage::problems(service::Controller& controller) {
  constexpr std::chrono::seconds kKept{1}, kPatience{3};
  std::unique_lock lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  if (is_asking_ && now > *asked_ + kPatience) return {"musterd waits for its disk"};
  if (is_asking_ || (asked_ && now < *asked_ + kKept)) return problems_;
  is_asking_ = true;
  asked_ = now;
  lock.unlock();
  auto found = problems_of(controller);
  lock.lock();
  is_asking_ = false;
  problems_ = found;
  return found;
}

}  // namespace http
