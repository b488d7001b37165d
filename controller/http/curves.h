#pragma once

#include <nlohmann/json_fwd.hpp>

#include "service/controller.h"

namespace http {

/// The answer to jobs/NUMBER/metrics?points=N: the curves of a job in at most N points each.
///
///   points                       at most kMaxCurvePoints
///   from_step, to_step           only these steps, of every attempt; both are optional
///   after_attempt, after_step    only the steps after this one; a page that follows a job sends them
///   spacing                      "linear" (the default), or "log": each power of two of the steps gets equally many
///   points
///
///   {"attempts": [{"attempt": 1, "first_step": 1, "last_step": 900}, ...],   every attempt with steps
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

}  // namespace http
