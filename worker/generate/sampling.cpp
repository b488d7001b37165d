#include "worker/generate/sampling.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "data/order/splitmix.h"

namespace worker {
namespace {

struct Candidate {
  std::int64_t token = 0;
  double weight = 0;  // its probability times the sum of all weights
};

std::int64_t most_likely(std::span<const float> logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

/// exp((logit - greatest) / temperature) of each token, and the sum of all.
std::vector<Candidate> weighed(std::span<const float> logits, double temperature, double& sum) {
  const double greatest = *std::max_element(logits.begin(), logits.end());
  std::vector<Candidate> all(logits.size());
  sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    all[i] = {static_cast<std::int64_t>(i), std::exp((static_cast<double>(logits[i]) - greatest) / temperature)};
    sum += all[i].weight;
  }
  return all;
}

/// The tokens that top_p leaves, the most likely one first. `sum` is that of all weights.
std::vector<Candidate> nucleus(std::vector<Candidate> all, double top_p, double sum) {
  // Tokens below this weight have less than 1 - top_p together, so none of them stays. Few are left to sort.
  const double least = (1 - top_p) * sum / static_cast<double>(all.size()) / 2;
  std::erase_if(all, [&](const Candidate& one) { return one.weight < least; });
  std::ranges::sort(all, [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
  });
  double before = 0;
  std::size_t kept = 0;
  while (kept < all.size() && (kept == 0 || before < top_p * sum)) before += all[kept++].weight;
  all.resize(kept);
  return all;
}

}  // namespace

void check(const Sampling& sampling) {
  const auto refuse = [](const std::string& what) { throw std::invalid_argument(what); };
  if (!(sampling.temperature >= 0) || !std::isfinite(sampling.temperature))
    refuse("a temperature of " + std::to_string(sampling.temperature) + ": want 0 or a number above it");
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    refuse("a top_p of " + std::to_string(sampling.top_p) + ": want a number above 0 and at most 1");
  if (sampling.max_new_tokens < 0)
    refuse(std::to_string(sampling.max_new_tokens) + " new tokens: want a whole number from 0 on");
}

std::int64_t pick(std::span<const float> logits, const Sampling& sampling, std::uint64_t draw) {
  if (logits.empty()) throw std::invalid_argument("pick: there are no logits");
  if (std::ranges::any_of(logits, [](float logit) { return std::isnan(logit) || logit == INFINITY; })) {
    throw std::invalid_argument(
        "the model's logits are not numbers: its weights are damaged, or too large for this precision; try fp32");
  }
  if (sampling.temperature == 0) return most_likely(logits);
  double sum = 0;
  auto candidates = weighed(logits, sampling.temperature, sum);
  if (sampling.top_p < 1) {
    candidates = nucleus(std::move(candidates), sampling.top_p, sum);
    sum = 0;
    for (const auto& one : candidates) sum += one.weight;
  }
  double left = static_cast<double>(draw >> 11) * 0x1p-53 * sum;
  std::int64_t last = candidates.front().token;
  for (const auto& one : candidates) {
    if (one.weight == 0) continue;
    if (left < one.weight) return one.token;
    left -= one.weight;
    last = one.token;
  }
  return last;  // rounding has left a rest behind the last token
}

std::uint64_t draw_for(std::uint64_t seed, std::uint64_t row, std::uint64_t token) {
  return data::order::splitmix(data::order::splitmix(data::order::splitmix(seed) + row) +
                               (token + 1) * data::order::kSplitmixStride);
}

}  // namespace worker
