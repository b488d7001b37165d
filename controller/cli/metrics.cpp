#include <algorithm>
#include <iostream>

#include "cli/command.h"
#include "cli/contact.h"
#include "cli/json_view.h"
#include "cli/metric_columns.h"
#include "cli/series_text.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "cli/usage.h"

namespace cli {
namespace {

using muster::v1::Metric;

struct MetricsOptions {
  std::int64_t job = 0;
  std::uint32_t attempt = 0;
  std::vector<std::string> series;
  bool follow = false;
  bool json = false;
  bool csv = false;
};

class Printer {
 public:
  Printer(const MetricsOptions& options, MetricColumns columns)
      : options_(options), columns_(std::move(columns)), rows_(options.follow) {}

  void take(Metric metric) {
    // After a lost connection the stream begins again. Rows that were printed before are skipped.
    const auto at = std::pair(metric.attempt(), metric.step());
    if (at <= newest_) return;
    newest_ = at;
    if (!columns_.wants(metric)) return;
    columns_.cut(metric);
    if (options_.json) {
      rows_.add(json_of(metric));
    } else if (options_.csv) {
      csv(metric);
    } else {
      const bool grown = columns_.add(metric);
      if (!any_ || grown) std::cout << painted(metric_head(columns_, table_columns()), Colour::kDim) << "\n";
      std::cout << metric_text(columns_, metric, table_columns()) << "\n";
    }
    any_ = true;
    if (options_.follow) std::cout << std::flush;
  }
  void end() {
    if (options_.json) return rows_.end();
    if (!left_out_.empty()) {
      std::cerr << "muster: left out a series that the first line does not name: " << left_out_
                << "; run the command again\n";
    }
    if (any_) return;
    std::cerr << "muster: job " << options_.job << " has no metrics "
              << (options_.attempt > 0       ? "of attempt " + std::to_string(options_.attempt)
                  : !options_.series.empty() ? "of these series yet"
                                             : "yet")
              << ": only a program that reports its steps has metrics, from its first step on; muster-worker does\n";
  }

 private:
  /// Prints a row. The first row is preceded by a line with the names of the columns.
  void csv(const Metric& metric) {
    if (!any_) {
      columns_.add(metric);
      std::cout << metric_csv_head(columns_) << "\n";
    }
    for (const auto& [name, value] : metric.series()) {
      if (std::ranges::find(columns_.series(), name) == columns_.series().end()) left_out_ = name;
    }
    std::cout << metric_csv(columns_, metric) << "\n";
  }

  const MetricsOptions& options_;
  MetricColumns columns_;
  JsonRows rows_;
  std::string left_out_;
  std::pair<std::uint32_t, std::int64_t> newest_{0, 0};
  bool any_ = false;
};

/// The columns of the series that the job has so far. Later series come with the stream.
MetricColumns columns_of(Client& client, const MetricsOptions& options) {
  MetricColumns columns(options.series);
  muster::v1::GetRequest request;
  request.set_job_id(options.job);
  muster::v1::Job job;
  const auto status = client.try_call(client.jobs(), &muster::v1::JobService::Stub::Get, request, &job);
  if (!status.ok()) return columns;  // the stream will report the error
  columns.add(job);
  if (options.follow || job.series_size() == 0) return columns;
  std::vector<std::string> known;
  for (const auto& series : job.series()) known.push_back(series.name());
  for (const auto& name : options.series) {
    if (std::ranges::find(known, name) != known.end()) continue;
    throw Failure(kUsage, "job " + std::to_string(options.job) + ": " + no_such_series(name, known));
  }
  return columns;
}

int run_metrics(Session& session, const MetricsOptions& options) {
  auto& client = session.client();
  muster::v1::MetricsRequest request;
  request.set_job_id(options.job);
  request.set_attempt(options.attempt);
  request.set_follow(options.follow);
  Printer printer(options, columns_of(client, options));
  const auto take = [&](const Metric& metric) { printer.take(metric); };
  const auto open = [&](grpc::ClientContext* context) { return client.jobs().Metrics(context, request); };
  auto end = StreamEnd::kComplete;
  if (options.follow) {
    end = Contact(client).follow<Metric>(open, take);
  } else {
    Contact::read<Metric>(client, open, take);
  }
  printer.end();
  return end == StreamEnd::kInterrupted ? kInterrupted : kSuccess;
}

}  // namespace

void define_metrics(CLI::App& app, Session& session) {
  auto options = add_action<MetricsOptions>(app, session, run_metrics);
  add_job(app, options->job);
  app.add_option("--attempt", options->attempt, "Only this attempt")
      ->check(whole_number(1, UINT32_MAX))
      ->type_name("N");
  app.add_option("--series", options->series, "Only this series, and the steps that have it; may be repeated")
      ->type_name("SERIES")
      ->allow_extra_args(false);
  app.add_flag("-f,--follow", options->follow, "Go on with new steps until the job ends");
  auto* json = app.add_flag("--json", options->json, "An array; with -f one object a line");
  app.add_flag("--csv", options->csv, "Comma-separated, with the names in the first line")->excludes(json);
}

}  // namespace cli
