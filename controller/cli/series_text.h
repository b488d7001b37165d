#pragma once

#include <google/protobuf/repeated_field.h>

#include <string>
#include <vector>

#include "muster/v1/job.pb.h"

namespace cli {

/// The name of a series as words: "validation loss" for "validation/loss".
std::string words_of(const std::string& series);

/// As words_of(), in capitals: "VALIDATION LOSS".
std::string capitals_of(const std::string& series);

/// ", validation loss 2.9": the newest values of the first three validation series.
std::string held_out_text(const muster::v1::Job& job);

/// "learning_rate 0.0003, grad_norm 1.2, validation/loss 2.9 at step 40": the newest values of at most `most` series
/// that `muster show` prints nowhere else.
std::string other_series_text(const muster::v1::Job& job, std::size_t most);

/// The message for an unknown series: `want one of loss, validation/loss, did you mean validation/loss`.
std::string no_such_series(const std::string& wanted, const std::vector<std::string>& known);

}  // namespace cli
