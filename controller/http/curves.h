#pragma once

#include <nlohmann/json_fwd.hpp>

#include "store/thinning.h"

namespace http {

/// What jobs/NUMBER/metrics?points=N answers: the curves of a job in few points.
///
///   points         most points of one curve, at most kMaxCurvePoints; 0: none
///   from_step, to_step           only these steps, of every attempt; both may be left out
///   after_attempt, after_step    only what came after this step: a page that follows a job
///   spacing        "log": each power of two of the steps gets as many points; "linear" otherwise
///
///   {"attempts": [{"attempt": 1, "first_step": 1, "last_step": 900}, ...],   every attempt that has steps
///    "bucket_steps": 32,                                                     1: no value is left out
///    "series":   [{"name": "loss", "values": 900, "steps": 900,
///                  "attempt": [1, ...], "step": [1, ...], "at_ms": [...], "value": [2.5, null, ...],
///                  "last": [1, ...]}, ...],
///    "measures": the same of "step_ms", "memory_peak_bytes" and "bytes_communicated"}
///
/// Of each bucket of steps the lowest, the highest and the last value are there, and the first one that is no number
/// (null). `last` is 1 at the last value of its bucket, else 0. `values` counts what was reported in the range, and
/// `steps` the steps since the first of these values.
nlohmann::ordered_json to_json(const store::Thinned& thinned);

}  // namespace http
