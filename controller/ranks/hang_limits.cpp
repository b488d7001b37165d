#include "controller/ranks/liveness.h"

#include <cmath>

#include "controller/core/core_text.h"

namespace ranks {
namespace {

/// A time is known to a fifth of itself.
constexpr double kBucketsADoubling = 4;
/// A bucket that counts less is forgotten.
constexpr double kNothing = 0.01;
constexpr std::string_view kStepSection = "step";

int bucket_of(core::Millis time) {
  const auto ms = static_cast<double>(std::max<core::Millis::rep>(time.count(), 1));
  return static_cast<int>(std::ceil(std::log2(ms) * kBucketsADoubling));
}

/// The longest time of a bucket.
double longest_ms(int bucket) {
  return std::exp2(bucket / kBucketsADoubling);
}

core::Millis millis(double ms) {
  return core::Millis(static_cast<core::Millis::rep>(ms));
}

}  // namespace

HangLimits::Section* HangLimits::find(const std::string& section) {
  if (const auto known = sections_.find(section); known != sections_.end()) return &known->second;
  return sections_.size() < kMostSections ? &sections_[section] : nullptr;
}

void HangLimits::learn(const std::string& section, core::RankNumber rank, core::Millis took, core::Step steps) {
  auto* known = find(section);
  if (known == nullptr || rank >= ranks_) return;
  known->times[bucket_of(took)] += 1;
  known->total += 1;
  if (known->ranks.empty()) known->ranks.resize(ranks_);
  auto& seen = known->ranks[rank];
  constexpr core::Step kMost = 1'000'000'000;
  seen.times = std::min<std::uint32_t>(seen.times + 1, kMost);
  seen.steps = static_cast<std::uint32_t>(std::min(seen.steps + std::clamp<core::Step>(steps, 0, kMost), kMost));
  known->most = {std::max(known->most.times, seen.times), std::max(known->most.steps, seen.steps)};
  if (known->total < kTimesKept * ranks_) return;
  for (auto& [_, count] : known->times) count /= 2;
  std::erase_if(known->times, [](const auto& bucket) { return bucket.second < kNothing; });
  known->total /= 2;
}

HangLimit HangLimits::of(const std::string& section) const {
  const auto found = sections_.find(section);
  if (found == sections_.end()) return {kGenerous, 0};
  const auto& known = found->second;
  if (known.times.empty()) return {kGenerous, 0};
  const double longest = longest_ms(known.times.rbegin()->first);
  double p99 = longest, above = 0;
  for (auto bucket = known.times.rbegin(); bucket != known.times.rend(); ++bucket) {
    p99 = longest_ms(bucket->first);
    above += bucket->second;
    if (above > known.total / 100) break;
  }
  const auto least = section == kStepSection ? kLeast : kLeastElsewhere;
  const auto learned = std::max({least, millis(5 * p99), millis(2 * longest)});
  const auto steps = section == kStepSection ? known.most.steps : known.most.times;
  if (steps < kEnoughSteps || known.most.times < kEnoughTimes) return {std::max(kGenerous, learned), 0};
  return {learned, steps};
}

std::string hang_limit_text(const HangLimit& limit, std::string_view section, bool is_set) {
  const auto time = core::duration_text(limit.time);
  if (is_set) return time + ", as liveness.hung_after says";
  if (limit.learned_from > 0) return time + ", learned from " + core::lessons_text(limit.learned_from, section);
  return time + " until " + core::lessons_text(HangLimits::kEnoughSteps, section) +
         " are timed, then learned from them";
}

}  // namespace ranks
