#pragma once

#include <google/protobuf/repeated_field.h>

#include <string>
#include <vector>

#include "muster/v1/job.pb.h"

namespace cli {

/// "validation loss" of "validation/loss".
std::string words_of(const std::string& series);

/// ", validation loss 2.9": the newest values on data that is not trained on, those of the first three such series.
std::string held_out_text(const muster::v1::Job& job);

/// "learning_rate 0.0003, grad_norm 1.2, validation/loss 2.9 at step 40": the newest values of series that are named
/// nowhere else in what is shown of a job, of at most `most`.
std::string other_series_text(const muster::v1::Job& job, std::size_t most);

/// Why there is no such series, and what to try: `want one of loss, validation/loss, did you mean validation/loss`.
std::string no_such_series(const std::string& wanted, const std::vector<std::string>& known);

}  // namespace cli
