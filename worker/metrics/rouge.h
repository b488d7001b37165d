#pragma once

#include <string_view>

namespace worker {

/// How much of the target a prediction has, from 0 to 1. Precision: the share of the prediction that is in the target.
/// Recall: the share of the target that is in the prediction. F1: their harmonic mean, 0 if both are 0.
struct Rouge {
  double precision = 0, recall = 0, f1 = 0;
};

struct RougeScores {
  Rouge one;    ///< rouge1: shared words
  Rouge two;    ///< rouge2: shared pairs of words
  Rouge l;      ///< rougeL: the longest common subsequence of words
  Rouge l_sum;  ///< rougeLsum: the same by sentence; a line feed ends a sentence
};

/// ROUGE of one pair (Lin, "ROUGE: A Package for Automatic Evaluation of Summaries", 2004), as the Python package
/// rouge-score 0.1.2 computes it without stemmer.
///
/// Words are runs of ASCII letters and digits, without case. All other bytes separate words, also those that are not
/// UTF-8. A score is 0 if target or prediction has no word. Never throws for a text. Time: words of the target times
/// words of the prediction. Memory: a bit for each pair of a word of the target and a word of the prediction.
RougeScores rouge(std::string_view target, std::string_view prediction);

}  // namespace worker
