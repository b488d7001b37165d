#include <algorithm>
#include <iostream>

#include "cli/command.h"
#include "cli/contact.h"
#include "cli/series_text.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "json/proto_json.h"

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

bool MetricColumns::add(const std::string& name) {
  if (asked_ || std::ranges::find(series_, name) != series_.end()) return false;
  series_.push_back(name);
  return true;
}

bool MetricColumns::add(const muster::v1::Job& job) {
  bool grown = false;
  for (const auto& series : job.series()) grown = add(series.name()) || grown;
  return grown;
}

bool MetricColumns::add(const Metric& metric) {
  std::vector<std::string> names;
  for (const auto& [name, value] : metric.series()) names.push_back(name);
  std::ranges::sort(names);
  bool grown = false;
  for (const auto& name : names) grown = add(name) || grown;
  return grown;
}

bool MetricColumns::wants(const Metric& metric) const {
  return !asked_ || std::ranges::any_of(series_, [&](const auto& name) { return metric.series().contains(name); });
}

void MetricColumns::cut(Metric& metric) const {
  if (!asked_) return;
  auto& series = *metric.mutable_series();
  for (auto at = series.begin(); at != series.end();) {
    at = std::ranges::find(series_, at->first) == series_.end() ? series.erase(at) : std::next(at);
  }
}

constexpr std::size_t kLeastWidth = 10;  // "0.00030146"
constexpr std::size_t kLongestTitle = 24;

struct Column {
  std::string title;
  std::size_t width;
  std::string series;  // empty: a fixed column
};

/// The title of a series: "VAL LOSS" for "validation/loss".
std::string title_of(const std::string& series) {
  if (series == "tokens_per_s") return "TOK/S";
  if (series == "learning_rate") return "LR";
  return cut(capitals_of(series.starts_with("validation/") ? "val" + series.substr(10) : series), kLongestTitle);
}

bool stands_first(const std::string& series) {
  return series == "loss" || series == "train/loss" || series == "tokens_per_s";
}

std::vector<Column> table_of(const MetricColumns& columns) {
  std::vector<Column> table{{"ATT", 3, {}}, {"STEP", 8, {}}};
  const auto add = [&](bool first) {
    for (const auto& series : columns.series()) {
      if (stands_first(series) != first && !columns.asked()) continue;
      const auto title = title_of(series);
      table.push_back({title, std::max(kLeastWidth, title.size()), series});
    }
  };
  add(true);
  if (columns.asked()) return table;
  table.push_back({"MS/STEP", kLeastWidth, {}});
  table.push_back({"PEAK MEMORY", 11, {}});
  add(false);
  return table;
}

/// Joins the cells. Leaves out the last columns if the row would be longer than `most`.
std::string row_text(const std::vector<Column>& table, const std::vector<std::string>& cells, std::size_t most) {
  std::string text;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto width = std::max(table[i].width, cells[i].size());
    if (text.size() + width + (i == 0 ? 0 : 1) > most) break;
    text += (i == 0 ? "" : " ") + std::string(width - cells[i].size(), ' ') + cells[i];
  }
  return text;
}

std::string cell_of(const Column& column, const Metric& metric) {
  if (!column.series.empty()) {
    const auto value = metric.series().find(column.series);
    return value == metric.series().end() ? "-" : number_text(value->second, 5);
  }
  if (column.title == "ATT") return std::to_string(metric.attempt());
  if (column.title == "STEP") return std::to_string(metric.step());
  if (column.title == "MS/STEP") return metric.has_step_ms() ? number_text(metric.step_ms()) : "-";
  return metric.has_memory_peak_bytes() ? bytes_text(metric.memory_peak_bytes()) : "-";
}

constexpr const char* kMeasures[] = {"loss",         "tokens_per_s",       "step_ms", "memory_peak_bytes",
                                     "memory_bytes", "bytes_communicated", "at_ms"};

/// True for a series with a fixed column.
bool is_in_fixed(const std::string& series) {
  return series == "loss" || series == "tokens_per_s";
}

/// A table with columns of fixed width, so that rows can be printed as they come. The order is: loss and throughput,
/// step time and memory, other series. Columns that do not fit into the terminal are left out.
std::string metric_head(const MetricColumns& columns, std::size_t width) {
  const auto table = table_of(columns);
  std::vector<std::string> cells;
  for (const auto& column : table) cells.push_back(column.title);
  return row_text(table, cells, width);
}

std::string metric_text(const MetricColumns& columns, const Metric& metric, std::size_t width) {
  const auto table = table_of(columns);
  std::vector<std::string> cells;
  for (const auto& column : table) cells.push_back(cell_of(column, metric));
  return row_text(table, cells, width);
}

/// Comma-separated values: the fixed columns and then the series. The cell of a value that is not a number is empty.
std::string metric_csv_head(const MetricColumns& columns) {
  std::string head = "attempt,step";
  if (!columns.asked()) append(head, joined(kMeasures, ","), ",");
  for (const auto& name : columns.series()) {
    if (columns.asked() || !is_in_fixed(name)) append(head, name, ",");
  }
  return head;
}

std::string metric_csv(const MetricColumns& columns, const Metric& metric) {
  std::string row = std::to_string(metric.attempt()) + "," + std::to_string(metric.step());
  const auto json = proto::to_json(metric);
  const auto add = [&row](const nlohmann::ordered_json& from, const std::string& name) {
    const auto value = from.find(name);
    row += "," + (value == from.end() ? "" : csv_cell(*value));
  };
  if (!columns.asked()) {
    for (const auto* name : kMeasures) add(json, name);
  }
  for (const auto& name : columns.series()) {
    if (columns.asked() || !is_in_fixed(name)) add(json.at("series"), name);
  }
  return row;
}

class Printer {
 public:
  Printer(const MetricsOptions& options, MetricColumns columns)
      : options_(options),
        columns_(std::move(columns)),
        rows_(options.follow ? JsonRows::Form::kLines : JsonRows::Form::kArray) {}

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
  muster::v1::Job job;
  const auto status = client.try_call(&JobStub::Get, of_job(options.job), &job);
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
  const auto end = Contact::read<Metric>(client, options.follow, open, take);
  printer.end();
  return end == StreamEnd::kInterrupted ? kInterrupted : kSuccess;
}

}  // namespace

void define_metrics(CLI::App& app, Session& session) {
  auto options = add_action<MetricsOptions>(app, session, run_metrics);
  add_job(app, options->job);
  add_number(app, "--attempt", options->attempt, 1, UINT32_MAX, "Only this attempt");
  app.add_option("--series", options->series, "Only this series, and the steps that have it; may be repeated")
      ->type_name("SERIES")
      ->allow_extra_args(false);
  app.add_flag("-f,--follow", options->follow, "Go on with new steps until the job ends");
  auto* json = app.add_flag("--json", options->json, "An array; with -f one object a line");
  app.add_flag("--csv", options->csv, "Comma-separated, with the names in the first line")->excludes(json);
}

}  // namespace cli
