#include "worker/metrics/classification.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <numeric>
#include <stdexcept>

namespace worker {
namespace {

std::size_t size_of(int classes) {
  if (classes >= 1 && classes <= Confusion::kMostClasses) {
    return static_cast<std::size_t>(classes) * static_cast<std::size_t>(classes);
  }
  throw std::invalid_argument("confusion table: " + std::to_string(classes) + " classes; it can have 1 to " +
                              std::to_string(Confusion::kMostClasses));
}

double ratio(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

/// "#3": the name of a class in the table's head.
std::string number_of(int label) {
  std::string text = "#";
  return text += std::to_string(label);
}

std::string right_aligned(const std::string& text, std::size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

/// Three decimals in a column of 11.
std::string score_column(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%11.3f", value);
  return text;
}

std::string printable(std::string text) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; };
  std::replace_if(text.begin(), text.end(), is_control, '?');
  return text;
}

}  // namespace

Confusion::Confusion(int classes) : classes_(classes), counts_(size_of(classes), 0) {}

Confusion::Confusion(int classes, std::span<const std::int64_t> counts) : Confusion(classes) {
  if (counts.size() != counts_.size()) {
    throw std::invalid_argument("confusion table: " + std::to_string(counts.size()) + " counts for " +
                                std::to_string(classes) + " classes; there must be " + std::to_string(counts_.size()));
  }
  if (const auto negative = std::find_if(counts.begin(), counts.end(), [](std::int64_t one) { return one < 0; });
      negative != counts.end()) {
    throw std::invalid_argument("confusion table: count " + std::to_string(negative - counts.begin()) + " is " +
                                std::to_string(*negative) + "; it must be at least 0");
  }
  counts_.assign(counts.begin(), counts.end());
}

void Confusion::add(int truth, int guess) {
  for (const int label : {truth, guess}) {
    if (label >= 0 && label < classes_) continue;
    throw std::out_of_range("confusion table: class " + std::to_string(label) + "; there are " +
                            std::to_string(classes_) + ", numbered from 0");
  }
  ++counts_[static_cast<std::size_t>(truth) * static_cast<std::size_t>(classes_) + static_cast<std::size_t>(guess)];
}

void Confusion::add(const Confusion& that) {
  if (that.classes_ != classes_) {
    throw std::invalid_argument("confusion table: one of " + std::to_string(that.classes_) +
                                " classes can't be added to one of " + std::to_string(classes_));
  }
  for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += that.counts_[i];
}

std::int64_t Confusion::at(int truth, int guess) const {
  return counts_[static_cast<std::size_t>(truth) * static_cast<std::size_t>(classes_) +
                 static_cast<std::size_t>(guess)];
}

std::int64_t Confusion::samples() const {
  return std::accumulate(counts_.begin(), counts_.end(), std::int64_t{0});
}

double Confusion::accuracy() const {
  std::int64_t right = 0;
  for (int label = 0; label < classes_; ++label) right += at(label, label);
  return ratio(right, samples());
}

ClassScores Confusion::of_class(int label) const {
  ClassScores scores;
  for (int other = 0; other < classes_; ++other) {
    scores.samples += at(label, other);
    scores.guesses += at(other, label);
  }
  const auto right = at(label, label);
  scores.precision = ratio(right, scores.guesses);
  scores.recall = ratio(right, scores.samples);
  scores.f1 = ratio(2 * right, scores.samples + scores.guesses);
  return scores;
}

double Confusion::macro_f1() const {
  double sum = 0;
  int present = 0;
  for (int label = 0; label < classes_; ++label) {
    const auto scores = of_class(label);
    if (scores.samples + scores.guesses == 0) continue;
    sum += scores.f1;
    ++present;
  }
  return present == 0 ? 0 : sum / present;
}

std::string Confusion::table(std::span<const std::string> labels) const {
  const int columns = classes_ <= kMostColumns ? classes_ : 0;
  const auto most = std::to_string(*std::max_element(counts_.begin(), counts_.end()));
  const auto first = number_of(classes_ - 1).size(), width = std::max(most.size(), first) + 2;
  std::string text(first, ' ');
  for (int guess = 0; guess < columns; ++guess) text += right_aligned(number_of(guess), width);
  text += right_aligned("samples", 11) + right_aligned("precision", 11) + right_aligned("recall", 11) +
          right_aligned("F1", 11) + "  class\n";
  for (int truth = 0; truth < classes_; ++truth) {
    text += right_aligned(number_of(truth), first);
    for (int guess = 0; guess < columns; ++guess) text += right_aligned(std::to_string(at(truth, guess)), width);
    const auto scores = of_class(truth);
    text += right_aligned(std::to_string(scores.samples), 11);
    for (const double score : {scores.precision, scores.recall, scores.f1}) text += score_column(score);
    const auto label = static_cast<std::size_t>(truth);
    if (label < labels.size()) text += "  " + printable(labels[label]);
    text += '\n';
  }
  char last[128];
  std::snprintf(last, sizeof last, "accuracy %.3f, macro F1 %.3f, %lld samples; rows: truth, columns: guess\n",
                accuracy(), macro_f1(), static_cast<long long>(samples()));
  return text + last;
}

}  // namespace worker
