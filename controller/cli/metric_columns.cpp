#include "cli/metric_columns.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "cli/json_view.h"
#include "cli/series_text.h"
#include "cli/text.h"

namespace cli {
namespace {

using muster::v1::Metric;

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
  auto title = words_of(series.starts_with("validation/") ? "val" + series.substr(10) : series);
  for (char& c : title) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return cut(title, kLongestTitle);
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

/// The shortest text that gives the same number again, as in JSON.
std::string csv_number(double value) {
  return std::isfinite(value) ? nlohmann::json(value).dump() : std::string();
}

/// True for a series with a fixed column.
bool is_in_fixed(const std::string& series) {
  return series == "loss" || series == "tokens_per_s";
}

}  // namespace

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

std::string metric_csv_head(const MetricColumns& columns) {
  std::string head = columns.asked() ? "attempt,step"
                                     : "attempt,step,loss,tokens_per_s,step_ms,memory_peak_bytes,memory_bytes,"
                                       "bytes_communicated,at_ms";
  for (const auto& name : columns.series()) {
    if (columns.asked() || !is_in_fixed(name)) head += "," + name;
  }
  return head;
}

std::string metric_csv(const MetricColumns& columns, const Metric& metric) {
  std::string row = std::to_string(metric.attempt()) + "," + std::to_string(metric.step());
  const auto add = [&](const std::string& cell) { row += "," + cell; };
  if (!columns.asked()) {
    add(metric.has_loss() ? csv_number(metric.loss()) : "");
    add(metric.has_tokens_per_s() ? csv_number(metric.tokens_per_s()) : "");
    add(metric.has_step_ms() ? csv_number(metric.step_ms()) : "");
    add(metric.has_memory_peak_bytes() ? std::to_string(metric.memory_peak_bytes()) : "");
    add(metric.has_memory_bytes() ? std::to_string(metric.memory_bytes()) : "");
    add(metric.has_bytes_communicated() ? std::to_string(metric.bytes_communicated()) : "");
    add(std::to_string(metric.at_ms()));
  }
  for (const auto& name : columns.series()) {
    if (!columns.asked() && is_in_fixed(name)) continue;
    const auto value = metric.series().find(name);
    add(value == metric.series().end() ? "" : csv_number(value->second));
  }
  return row;
}

}  // namespace cli
