#include "cli/metrics.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <ranges>
#include <set>

#include "base/words.h"
#include "cli/cli_command.h"
#include "cli/cli_text.h"
#include "proto/json/proto_json.h"
#include "spec/jobfile/toml_value.h"

namespace cli {
namespace {

using muster::v1::Metric;

constexpr int kMostHeldOut = 3;
constexpr int kMostNamed = 12;

/// The name of a series as words: "validation loss" for "validation/loss".
std::string series_words(const std::string& series) {
  auto words = series;
  std::ranges::replace_if(
      words, [](char c) { return c == '/' || c == '_'; }, ' ');
  return words;
}

bool is_named_elsewhere(const muster::v1::JobSeries& series) {
  return series.name() == "tokens_per_s" || (series.quantity() == "loss" && !series.held_out());
}

struct MetricsOptions {
  std::int64_t job = 0;
  std::uint32_t attempt = 0;
  std::vector<std::string> series;
  bool follow = false, json = false, csv = false;
};

/// The series to print and their order: the series that were asked for, or all in the order in which they appear.
class MetricColumns {
 public:
  explicit MetricColumns(std::vector<std::string> asked) : asked_(!asked.empty()), series_(std::move(asked)) {}

  /// Adds the row's series. Returns true if there are new columns.
  bool add(const Metric& metric) {
    std::set<std::string> names;
    for (const auto& [name, value] : metric.series()) names.insert(name);
    bool grown = false;
    for (const auto& name : names) grown = add(name) || grown;
    return grown;
  }
  /// Adds a series. Returns true if it is a new column.
  bool add(const std::string& name) {
    if (asked_ || has(name)) return false;
    series_.push_back(name);
    return true;
  }
  bool has(const std::string& name) const { return std::ranges::find(series_, name) != series_.end(); }
  /// True if the row has a series that was asked for.
  bool wants(const Metric& metric) const {
    return !asked_ || std::ranges::any_of(series_, [&](const auto& name) { return metric.series().contains(name); });
  }
  /// Removes the series that were not asked for.
  void cut(Metric& metric) const {
    if (!asked_) return;
    auto& series = *metric.mutable_series();
    for (auto at = series.begin(); at != series.end();) {
      at = has(at->first) ? std::next(at) : series.erase(at);
    }
  }

  bool asked() const { return asked_; }
  /// The job has reported, though perhaps nothing that can be printed.
  bool has_reported = false;
  const std::vector<std::string>& series() const { return series_; }

 private:
  bool asked_;
  std::vector<std::string> series_;
};

constexpr std::size_t kLeastWidth = 10;  // "0.00030146"
constexpr std::size_t kLongestTitle = 24;

/// A column of the table. Its width is fixed, so that rows can be printed as they come.
struct Column {
  std::string title;
  std::size_t width;
  std::function<std::string(const Metric&)> cell;
};

/// The title of a series: "VAL LOSS" for "validation/loss".
std::string title_of(const std::string& series) {
  if (series == "tokens_per_s") return "TOK/S";
  if (series == "learning_rate") return "LR";
  return cut(capitals_of(series.starts_with("validation/") ? "val" + series.substr(10) : series), kLongestTitle);
}

Column column_of(const std::string& series) {
  const auto title = title_of(series);
  return {title, std::max(kLeastWidth, title.size()), [series](const Metric& metric) {
            const auto value = metric.series().find(series);
            return value == metric.series().end() ? "-" : number_text(value->second, 5);
          }};
}

bool stands_first(const std::string& series) {
  return series == "loss" || series == "train/loss" || series == "tokens_per_s";
}

/// The order is: loss and throughput, step time and memory, other series.
std::vector<Column> table_of(const MetricColumns& columns) {
  std::vector<Column> table{{"ATT", 3, [](const Metric& metric) { return std::to_string(metric.attempt()); }},
                            {"STEP", 8, [](const Metric& metric) { return std::to_string(metric.step()); }}};
  const auto add = [&](bool first) {
    for (const auto& series : columns.series()) {
      if (stands_first(series) == first || columns.asked()) table.push_back(column_of(series));
    }
  };
  add(true);
  if (columns.asked()) return table;
  table.push_back({"MS/STEP", kLeastWidth,
                   [](const Metric& metric) { return metric.has_step_ms() ? number_text(metric.step_ms()) : "-"; }});
  table.push_back({"PEAK MEMORY", 11, [](const Metric& metric) {
                     return metric.has_memory_peak_bytes() ? bytes_text(metric.memory_peak_bytes()) : "-";
                   }});
  add(false);
  return table;
}

/// A line with text_of(column) of each column. Leaves out the last columns if they do not fit into the terminal.
template <typename TextOf>
std::string line_text(const std::vector<Column>& table, TextOf text_of) {
  const auto most = table_columns();
  std::string text;
  for (const auto& column : table) {
    const std::string cell = std::invoke(text_of, column);
    const auto width = std::max(column.width, cell.size());
    const std::string gap = text.empty() ? "" : " ";
    if (text.size() + gap.size() + width > most) break;
    text += gap + std::string(width - cell.size(), ' ') + cell;
  }
  return text;
}

constexpr const char* kMeasures[] = {"loss",         "tokens_per_s",       "step_ms", "memory_peak_bytes",
                                     "memory_bytes", "bytes_communicated", "at_ms"};

struct CsvColumn {
  std::string name;
  bool is_series = false;
};

/// The columns of comma-separated values: the fixed ones and then the series.
std::vector<CsvColumn> csv_columns(const MetricColumns& columns) {
  std::vector<CsvColumn> all{{"attempt"}, {"step"}};
  if (!columns.asked()) {
    for (const auto* name : kMeasures) all.push_back({name});
  }
  for (const auto& name : columns.series()) {
    const bool is_fixed = name == "loss" || name == "tokens_per_s";
    if (columns.asked() || !is_fixed) all.push_back({name, true});
  }
  return all;
}

std::string csv_names(const std::vector<CsvColumn>& columns) {
  std::string names;
  for (const auto& column : columns) append(names, column.name, ",");
  return names;
}

/// The cell of a value that is not a number is empty.
std::string csv_row(const std::vector<CsvColumn>& columns, const Metric& metric) {
  const auto json = proto::to_json(metric);
  std::string row;
  for (const auto& column : columns) {
    const auto& from = column.is_series ? json.at("series") : json;
    append(row, csv_cell(from.value(column.name, nlohmann::ordered_json())), ",");
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
    if (metric.has_aged_before_step()) tell_aged(metric);
    if (!columns_.wants(metric)) return;
    columns_.cut(metric);
    if (options_.json) {
      rows_.add(json_of(metric));
    } else if (options_.csv) {
      csv(metric);
    } else {
      const bool grown = columns_.add(metric);
      const auto table = table_of(columns_);
      if (!any_ || grown) std::cout << painted(line_text(table, &Column::title), Colour::kDim) << "\n";
      std::cout << line_text(table, [&](const Column& column) { return column.cell(metric); }) << "\n";
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
    if (columns_.has_reported && options_.attempt == 0 && options_.series.empty()) {
      std::cerr << "muster: the steps of job " << options_.job
                << " have aged out, or rank 0 has told none; the dashboard has their curves\n";
      return;
    }
    std::cerr << "muster: job " << options_.job << " has no metrics "
              << (options_.attempt > 0       ? "of attempt " + std::to_string(options_.attempt)
                  : !options_.series.empty() ? "of these series yet"
                                             : "yet")
              << ": only a program that reports its steps has metrics, from its first step on; muster-worker does\n";
  }

 private:
  void tell_aged(const Metric& metric) const {
    std::cerr << "muster: job " << options_.job << ", attempt " << metric.attempt() << ": the steps before "
              << metric.aged_before_step()
              << " have aged out; the dashboard has their curves, as points of every 32 steps and more\n";
  }
  /// Prints a row. The first row is preceded by a line with the names of the columns.
  void csv(const Metric& metric) {
    if (!any_) {
      columns_.add(metric);
      std::cout << csv_names(csv_columns(columns_)) << "\n";
    }
    for (const auto& [name, value] : metric.series()) {
      if (!columns_.has(name)) left_out_ = name;
    }
    std::cout << csv_row(csv_columns(columns_), metric) << "\n";
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
  const auto status =
      client.try_call([&](auto* context) { return client.jobs().Get(context, of_job(options.job), &job); });
  if (!status.ok()) return columns;  // the stream will report the error
  std::vector<std::string> known;
  for (const auto& series : job.series()) known.push_back(series.name());
  for (const auto& name : known) columns.add(name);
  columns.has_reported = !known.empty();
  if (options.follow || known.empty()) return columns;
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

std::string capitals_of(const std::string& series) {
  auto words = series_words(series);
  std::ranges::transform(words, words.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return words;
}

std::string held_out_text(const muster::v1::Job& job) {
  std::string text;
  int named = 0;
  for (const auto& series : job.series()) {
    if (!series.held_out() || !series.has_value() || named == kMostHeldOut) continue;
    text += ", " + series_words(series.name()) + " " + number_text(series.value());
    ++named;
  }
  return text;
}

std::string other_series_text(const muster::v1::Job& job, std::size_t most) {
  std::string text;
  std::size_t named = 0, others = 0;
  std::vector<muster::v1::JobSeries> all(job.series().begin(), job.series().end());
  std::ranges::stable_partition(all, &muster::v1::JobSeries::held_out);
  for (const auto& series : all) {
    if (is_named_elsewhere(series)) continue;
    if (named == most) {
      ++others;
      continue;
    }
    ++named;
    append(text, series.name() + " " + (series.has_value() ? number_text(series.value()) : "not a number"));
    if (series.step() != job.step()) text += " at step " + std::to_string(series.step());
  }
  if (others > 0) text += ", and " + std::to_string(others) + " more";
  return text;
}

std::string no_such_series(const std::string& wanted, const std::vector<std::string>& known) {
  if (known.empty()) return "there is no series " + jobfile::shown(wanted) + ": none has been reported yet";
  auto all = joined(known | std::views::take(kMostNamed));
  if (std::ssize(known) > kMostNamed) all += " and " + std::to_string(std::ssize(known) - kMostNamed) + " more";
  const auto near = base::nearest(wanted, known);
  return "there is no series " + jobfile::shown(wanted) + ", want one of " + all +
         (near.empty() ? "" : "; did you mean " + near);
}

void Curve::add(const muster::v1::Metric& metric) {
  if (metric.attempt() != attempt_) values_.erase(values_.lower_bound(metric.step()), values_.end());
  attempt_ = metric.attempt();
  const auto value = metric.series().find(series_);
  if (value != metric.series().end() && std::isfinite(value->second)) values_[metric.step()] = value->second;
}

std::optional<Curve::Point> Curve::last() const {
  if (values_.empty()) return std::nullopt;
  return Point{values_.rbegin()->first, values_.rbegin()->second};
}

std::optional<Curve::Point> Curve::best(spec::Better better) const {
  std::optional<Point> found;
  for (const auto& [step, value] : values_) {
    const bool is_better = !found || (better == spec::Better::kHigher ? value > found->value : value < found->value);
    if (is_better) found = {step, value};
  }
  return found;
}

std::optional<Curve::Point> Curve::smoothed() const {
  if (values_.empty()) return std::nullopt;
  double sum = 0;
  int count = 0;
  for (auto at = values_.rbegin(); at != values_.rend() && count < kSmoothedSteps; ++at, ++count) sum += at->second;
  return Point{values_.rbegin()->first, sum / count};
}

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
