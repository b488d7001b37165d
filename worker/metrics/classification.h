#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace worker {

/// How well one class is told from the others. Precision: the share of its guesses that are right, 0 without a guess.
/// Recall: the share of its samples that are found, 0 without a sample. F1: their harmonic mean, 0 if both are 0.
struct ClassScores {
  double precision = 0, recall = 0, f1 = 0;
  std::int64_t samples = 0, guesses = 0;
};

/// A confusion table: how often each class was taken for each class. Ranks add their counts element by element, so the
/// table of all samples is the sum of the tables of the ranks.
class Confusion {
 public:
  static constexpr int kMostClasses = 4096;  ///< a table has classes x classes counts: 128 MiB

  /// An empty table. Throws std::invalid_argument unless `classes` is 1 to kMostClasses.
  explicit Confusion(int classes);

  /// A table of counts() of another, or of their sum. Throws std::invalid_argument if they are not classes x classes,
  /// or one is negative.
  Confusion(int classes, std::span<const std::int64_t> counts);

  /// One sample. Throws std::out_of_range naming the class that is not in [0, classes).
  void add(int truth, int guess);

  /// All samples of another table. Throws std::invalid_argument if it has another number of classes.
  void add(const Confusion& that);

  int classes() const { return classes_; }
  std::int64_t samples() const;

  /// [truth, guess], row by row.
  std::span<const std::int64_t> counts() const { return counts_; }

  /// The share of samples whose guess is right. 0 without samples.
  double accuracy() const;

  ClassScores of_class(int label) const;

  /// The mean of the classes' F1. A class without samples and guesses does not count, as in scikit-learn and
  /// torchmetrics. 0 without samples.
  double macro_f1() const;

  /// The table for people, with the scores of each class and of all, each line ending with a line feed. Row: truth,
  /// column: guess. With more than kMostColumns classes the counts are left out. `labels`: a name a class; missing
  /// names stay empty, and control characters become "?".
  std::string table(std::span<const std::string> labels) const;
  static constexpr int kMostColumns = 20;

 private:
  std::int64_t at(int truth, int guess) const;

  int classes_;
  std::vector<std::int64_t> counts_;
};

}  // namespace worker
