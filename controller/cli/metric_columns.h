#pragma once

#include <string>
#include <vector>

#include "muster/v1/job.pb.h"

namespace cli {

/// The series to print and their order: the series that were asked for, or all in the order in which they appear.
class MetricColumns {
 public:
  explicit MetricColumns(std::vector<std::string> asked) : asked_(!asked.empty()), series_(std::move(asked)) {}

  /// Adds the job's series. Returns true if there are new columns.
  bool add(const muster::v1::Job& job);
  bool add(const muster::v1::Metric& metric);
  /// True if the row has a series that was asked for.
  bool wants(const muster::v1::Metric& metric) const;
  /// Removes the series that were not asked for.
  void cut(muster::v1::Metric& metric) const;

  bool asked() const { return asked_; }
  const std::vector<std::string>& series() const { return series_; }

 private:
  bool add(const std::string& name);

  bool asked_;
  std::vector<std::string> series_;
};

/// A table with columns of fixed width, so that rows can be printed as they come. The order is: loss and throughput,
/// step time and memory, other series. Columns that do not fit into the terminal are left out.
std::string metric_head(const MetricColumns& columns, std::size_t width);
std::string metric_text(const MetricColumns& columns, const muster::v1::Metric& metric, std::size_t width);

/// Comma-separated values: the fixed columns and then the series. The cell of a value that is not a number is empty.
std::string metric_csv_head(const MetricColumns& columns);
std::string metric_csv(const MetricColumns& columns, const muster::v1::Metric& metric);

}  // namespace cli
