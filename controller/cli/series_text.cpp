#include "cli/series_text.h"

#include <algorithm>
#include <ranges>

#include "cli/text.h"
#include "jobfile/toml_value.h"
#include "schema/nearest.h"

namespace cli {
namespace {

constexpr int kMostHeldOut = 3;
constexpr int kMostNamed = 12;

bool is_named_elsewhere(const muster::v1::JobSeries& series) {
  return series.name() == "tokens_per_s" || (series.quantity() == "loss" && !series.held_out());
}

}  // namespace

std::string words_of(const std::string& series) {
  auto words = series;
  std::ranges::replace_if(
      words, [](char c) { return c == '/' || c == '_'; }, ' ');
  return words;
}

std::string capitals_of(const std::string& series) {
  auto words = words_of(series);
  std::ranges::transform(words, words.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return words;
}

std::string held_out_text(const muster::v1::Job& job) {
  std::string text;
  int named = 0;
  for (const auto& series : job.series()) {
    if (!series.held_out() || !series.has_value() || named == kMostHeldOut) continue;
    text += ", " + words_of(series.name()) + " " + number_text(series.value());
    ++named;
  }
  return text;
}

std::string other_series_text(const muster::v1::Job& job, std::size_t most) {
  std::string text;
  std::size_t named = 0, others = 0;
  for (const auto& series : job.series()) {
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
  const auto near = schema::nearest(wanted, known);
  return "there is no series " + jobfile::shown(wanted) + ", want one of " + all +
         (near.empty() ? "" : "; did you mean " + near);
}

}  // namespace cli
