#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/rank/reporter.h"

namespace worker {

/// The record that begins an event file of TensorBoard. `at_s`: Unix time in seconds.
std::string first_event(double at_s);

/// The record of a step's values: a tensorflow.Event in protobuf's wire format, in a TFRecord. Values are fp32 there.
std::string scalar_event(double at_s, std::int64_t step, const std::vector<agent::rank::SeriesValue>& values);

}  // namespace worker
