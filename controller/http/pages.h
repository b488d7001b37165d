#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "controller/net/connections.h"
#include "controller/service/controller.h"

namespace http {

// Answers that are made of more than one of the controller's.

/// The answer to jobs/NUMBER/metrics?points=N: the curves of a job in at most N points each.
///
///   points                       at most kMaxCurvePoints
///   from_step, to_step           only these steps, of every attempt; both are optional
///   after_attempt, after_step    only the steps after this one; a page that follows a job sends them
///   spacing                      "linear" (the default), or "log": each power of two of the steps gets equally many
///   points
///
///   {"attempts": [{"attempt": 1, "first_step": 1, "last_step": 900,           every attempt with steps
///                  "rows_from_step": 0}, ...],    the rows of earlier steps have aged out: 32 of them are one bucket
///    "bucket_steps": 32,                                                     1: every value is here
///    "series":   [{"name": "loss", "values": 900, "steps": 900,
///                  "attempt": [1, ...], "step": [1, ...], "at_ms": [...], "value": [2.5, null, ...],
///                  "last": [1, ...]}, ...],
///    "measures": the same of "step_ms", "memory_peak_bytes" and "bytes_communicated"}
///
/// A bucket keeps its lowest, its highest and its last value, and its first value that is no number (null). `last` is 1
/// at the last value of a bucket, else 0. `values` counts the reported values of the range. `steps` counts the steps
/// since the first of these values.
nlohmann::ordered_json to_json(const store::Thinned& thinned);

/// A part of the ranks of a job's newest attempt. The dashboard asks only for the ranks in view.
struct RankRange {
  std::uint32_t from = 0;
  std::uint32_t limit = 0;
  /// Only ranks in this state. "slow": only slow ranks. Empty: all ranks.
  std::string show;
};

/// The answer to jobs/NUMBER/ranks.
///
///   {"attempt": 2, "total": 4096,              how many ranks `show` selects
///    "states": {"running": 4095, "missing": 1}, "slow": 0,    of all ranks
///    "ranks": [Rank, ...]}                      of these, at most `limit` ranks from place `from` on
///
/// The state "missing" means that the controller knows nothing of the rank yet.
nlohmann::ordered_json rank_page(const muster::v1::Job& job, const RankRange& range);

/// The most events that one scrape reads. The next scrape goes on after them.
inline constexpr std::uint32_t kMaxEventsAScrape = 20000;

/// The answer to /metrics, in Prometheus' text format. Counters of events begin at 0 with each start of musterd, so
/// they never jump by what was stored before. Thread-safe.
class MetricsPage {
 public:
  /// `newest_event`: the newest one that was stored before musterd started. `connections`: those of all ports.
  MetricsPage(std::int64_t newest_event, std::shared_ptr<net::Connections> connections)
      : connections_(std::move(connections)), read_up_to_(newest_event) {}

  std::string text(service::Controller& controller);

  std::atomic<std::uint64_t> requests{0};
  std::atomic<std::int64_t> streams{0};

 private:
  const std::shared_ptr<net::Connections> connections_;
  std::mutex mutex_;
  std::int64_t read_up_to_;
  std::map<std::string, std::uint64_t> events_by_type_;
};

/// The answer to /healthz: what keeps musterd from its work, in words that name no file, since nobody needs the token
/// for them. One request a second at most asks the controller, which may wait for a disk. The others never wait.
/// Thread-safe.
class HealthPage {
 public:
  /// Empty: nothing does. "the store takes no writes", "the scheduler does not answer".
  std::vector<std::string> problems(service::Controller& controller);

 private:
  std::mutex mutex_;
  std::optional<std::chrono::steady_clock::time_point> asked_;
  bool is_asking_ = false;
  std::vector<std::string> problems_;
};

}  // namespace http
