#include "worker/metrics/rouge.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace worker {
namespace {

/// Words as numbers: equal words have equal numbers.
using Words = std::vector<std::uint32_t>;

/// Reads texts and numbers their words.
class WordReader {
 public:
  Words read(std::string_view text) {
    Words words;
    std::string word;
    const auto end_word = [&] {
      if (!word.empty()) words.push_back(number_of(word));
      word.clear();
    };
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      // Two characters beyond ASCII have ASCII letters in lower case: Python's lower() turns the Kelvin sign into "k",
      // and I with dot above into "i" and a combining dot, which separates words.
      if (text.substr(i, 3) == "\xe2\x84\xaa") {
        word += 'k';
        i += 2;
      } else if (text.substr(i, 2) == "\xc4\xb0") {
        word += 'i';
        end_word();
        ++i;
      } else if (c >= 'A' && c <= 'Z') {
        word += static_cast<char>(c - 'A' + 'a');
      } else if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
        word += c;
      } else {
        end_word();
      }
    }
    end_word();
    return words;
  }

  /// The words of each line that has at least one byte.
  std::vector<Words> read_sentences(std::string_view text) {
    std::vector<Words> sentences;
    while (!text.empty()) {
      const auto line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(line.size() + 1, text.size()));
      if (!line.empty()) sentences.push_back(read(line));
    }
    return sentences;
  }

 private:
  std::uint32_t number_of(const std::string& word) {
    return numbers_.emplace(word, static_cast<std::uint32_t>(numbers_.size())).first->second;
  }

  std::unordered_map<std::string, std::uint32_t> numbers_;
};

/// `shared` of `target` and `predicted` things.
Rouge score(std::size_t shared, std::size_t target, std::size_t predicted) {
  Rouge out;
  out.precision = static_cast<double>(shared) / static_cast<double>(std::max<std::size_t>(predicted, 1));
  out.recall = static_cast<double>(shared) / static_cast<double>(std::max<std::size_t>(target, 1));
  const double sum = out.precision + out.recall;
  if (sum > 0) out.f1 = 2 * out.precision * out.recall / sum;
  return out;
}

/// How often each run of `n` words comes. `n` is 1 or 2.
std::unordered_map<std::uint64_t, std::size_t> count_runs(const Words& words, std::size_t n) {
  std::unordered_map<std::uint64_t, std::size_t> counts;
  for (std::size_t i = 0; i + n <= words.size(); ++i) {
    ++counts[n == 1 ? words[i] : (std::uint64_t{words[i]} << 32) + words[i + 1]];
  }
  return counts;
}

Rouge score_runs(const Words& target, const Words& prediction, std::size_t n) {
  const auto runs_of = [n](const Words& words) { return words.size() < n ? 0 : words.size() - n + 1; };
  const auto predicted = count_runs(prediction, n);
  std::size_t shared = 0;
  for (const auto& [run, count] : count_runs(target, n)) {
    const auto found = predicted.find(run);
    if (found != predicted.end()) shared += std::min(count, found->second);
  }
  return score(shared, runs_of(target), runs_of(prediction));
}

/// The longest common subsequence of two sentences, by dynamic programming over their beginnings.
class CommonWords {
 public:
  CommonWords(const Words& target, const Words& prediction)
      : target_(target), prediction_(prediction), goes_left_(target.size() * prediction.size()) {
    std::vector<std::uint32_t> above(prediction.size() + 1), row(prediction.size() + 1);
    for (std::size_t i = 0; i < target.size(); ++i) {
      for (std::size_t j = 0; j < prediction.size(); ++j) {
        const bool is_left_longer = row[j] > above[j + 1];
        row[j + 1] = target[i] == prediction[j] ? above[j] + 1 : std::max(row[j], above[j + 1]);
        goes_left_[i * prediction.size() + j] = is_left_longer;
      }
      std::swap(above, row);
    }
    length_ = above.back();
  }

  std::size_t length() const { return length_; }

  /// Marks the words of the target that are in it. Where several subsequences are longest, the choice is that of
  /// rouge-score, on which rougeLsum depends.
  void mark(std::vector<bool>& of_target) const {
    auto i = target_.size(), j = prediction_.size();
    while (i > 0 && j > 0) {
      if (target_[i - 1] == prediction_[j - 1]) {
        of_target[--i] = true;
        --j;
      } else if (goes_left_[(i - 1) * prediction_.size() + (j - 1)]) {
        --j;
      } else {
        --i;
      }
    }
  }

 private:
  const Words& target_;
  const Words& prediction_;
  std::vector<bool> goes_left_;  // [target, prediction]: whether one word less of the prediction has more in common
  std::size_t length_ = 0;
};

/// Counts of how often target and prediction still have a word.
struct Left {
  std::size_t target = 0, prediction = 0;
};

Rouge score_sentences(const std::vector<Words>& target, const std::vector<Words>& prediction) {
  std::unordered_map<std::uint32_t, Left> left;
  std::size_t target_words = 0, predicted_words = 0, shared = 0;
  for (const auto& sentence : target) {
    target_words += sentence.size();
    for (const auto word : sentence) ++left[word].target;
  }
  for (const auto& sentence : prediction) {
    predicted_words += sentence.size();
    for (const auto word : sentence) ++left[word].prediction;
  }
  if (target_words == 0 || predicted_words == 0) return {};
  for (const auto& sentence : target) {
    std::vector<bool> marked(sentence.size(), false);
    for (const auto& other : prediction) CommonWords(sentence, other).mark(marked);
    for (std::size_t i = 0; i < sentence.size(); ++i) {
      if (!marked[i]) continue;
      auto& word = left[sentence[i]];
      if (word.target == 0 || word.prediction == 0) continue;
      --word.target;
      --word.prediction;
      ++shared;
    }
  }
  return score(shared, target_words, predicted_words);
}

}  // namespace

RougeScores rouge(std::string_view target, std::string_view prediction) {
  WordReader reader;
  const auto target_words = reader.read(target), predicted_words = reader.read(prediction);
  RougeScores scores;
  scores.one = score_runs(target_words, predicted_words, 1);
  scores.two = score_runs(target_words, predicted_words, 2);
  scores.l = score(CommonWords(target_words, predicted_words).length(), target_words.size(), predicted_words.size());
  scores.l_sum = score_sentences(reader.read_sentences(target), reader.read_sentences(prediction));
  return scores;
}

}  // namespace worker
