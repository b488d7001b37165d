#pragma once

#include <string>
#include <vector>

#include "muster/v1/job.pb.h"

namespace cli {

/// Which series of a job are printed, and in which order: all as they come up, or those that were asked for.
class MetricColumns {
 public:
  explicit MetricColumns(std::vector<std::string> asked) : asked_(!asked.empty()), series_(std::move(asked)) {}

  /// Takes in series that are known of the job. True if there are new columns.
  bool add(const muster::v1::Job& job);
  bool add(const muster::v1::Metric& metric);
  /// Whether this row has anything that was asked for.
  bool wants(const muster::v1::Metric& metric) const;
  /// Only what was asked for.
  void cut(muster::v1::Metric& metric) const;

  bool asked() const { return asked_; }
  const std::vector<std::string>& series() const { return series_; }

 private:
  bool add(const std::string& name);

  bool asked_;
  std::vector<std::string> series_;
};

/// A table of fixed widths: rows are printed as they come, as many columns as the terminal holds. The loss and the
/// throughput stand first, then step time and memory, then the other series.
std::string metric_head(const MetricColumns& columns, std::size_t width);
std::string metric_text(const MetricColumns& columns, const muster::v1::Metric& metric, std::size_t width);

/// Comma-separated: the fixed columns, then the series. Of a number that is none the cell is empty.
std::string metric_csv_head(const MetricColumns& columns);
std::string metric_csv(const MetricColumns& columns, const muster::v1::Metric& metric);

}  // namespace cli
