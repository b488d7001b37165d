#pragma once

#include <algorithm>
#include <map>
#include <string>

#include "muster/v1/job.pb.h"
#include "spec/series.h"

namespace test {

/// Updates a job's series as the controller does when the job has reported this step: for fakes of the controller.
inline void note_series(muster::v1::Job& job, const muster::v1::Metric& metric) {
  const std::map<std::string, double> sorted(metric.series().begin(), metric.series().end());
  for (const auto& [name, value] : sorted) {
    auto& all = *job.mutable_series();
    const auto found = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.name() == name; });
    auto& series = found == all.end() ? *job.add_series() : *found;
    series.set_name(name);
    series.set_quantity(std::string(spec::quantity_of(name)));
    series.set_held_out(spec::is_held_out(name));
    series.set_better(std::string(spec::to_string(spec::undeclared_series(name).better)));
    series.set_attempt(metric.attempt());
    series.set_step(metric.step());
    series.set_value(value);
  }
}

}  // namespace test
