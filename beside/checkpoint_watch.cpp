#include "beside/checkpoint_watch.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <set>
#include <utility>

#include "beside/folder_walk.h"

namespace beside {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0;
}

bool is_good_order(const contract::ExitStatus& end) {
  return end.signal == 0 && (end.code == 0 || end.code == contract::kExitRequeue);
}

}  // namespace

CheckpointWatch::CheckpointWatch(const std::string& pattern, std::string base)
    : pattern_text_(pattern), pattern_(pattern), base_(std::move(base) + "/") {}

Found CheckpointWatch::look(const Moment& moment) {
  if (!moment.end && moment.now < next_look_) return {};
  const auto began = std::chrono::steady_clock::now();
  std::size_t names = kMostEntries, budget = kMostEntries;
  auto matches = pattern_.find(names);
  has_matched_ = has_matched_ || !matches.empty();
  if (moment.end && !has_matched_) complain("report.checkpoints: nothing has matched " + pattern_text_);
  // The newest names come last in most cases, and those are what changes. The old ones are left out of a crowd.
  std::ranges::sort(matches, [](const auto& a, const auto& b) {
    return std::pair(step_in_name(a.name), a.path) > std::pair(step_in_name(b.name), b.path);
  });
  std::set<std::string> there;
  for (const auto& match : matches) {
    there.insert(match.path);
    if (budget > 0 && !is_draft_name(match.path.substr(match.path.rfind('/') + 1))) look_at(match, moment, budget);
  }
  if (names == 0 || budget == 0) {
    complain("report.checkpoints: there are over " + std::to_string(kMostEntries) +
             " files to look at; some are left out");
  } else {
    std::erase_if(seen_, [&](const auto& one) { return !there.contains(one.first); });
  }
  Found found;
  if (!std::exchange(is_first_look_, false)) take_complete(moment, found.reports);
  next_look_ = moment.now + kPauses * (std::chrono::steady_clock::now() - began);
  return found;
}

CheckpointWatch::Shape CheckpointWatch::shape_of(const std::string& path, std::size_t& budget) {
  Shape shape;
  const auto add = [&](const struct stat& status) {
    if (S_ISREG(status.st_mode)) {
      ++shape.files;
      shape.bytes += static_cast<std::uint64_t>(status.st_size);
    }
    shape.newest_ns = std::max(shape.newest_ns, changed_ns(status));
  };
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return shape;
  --budget;
  add(status);
  if (S_ISDIR(status.st_mode)) {
    walk_folder(path, kDeepest, Links::kThemselves, budget, [&](const FolderEntry& entry) { add(entry.status); });
  }
  return shape;
}

void CheckpointWatch::look_at(const Wildcards::Match& match, const Moment& moment, std::size_t& budget) {
  const auto shape = shape_of(match.path, budget);
  const auto [place, is_new] = seen_.try_emplace(match.path);
  auto& seen = place->second;
  if (!is_new && seen.shape == shape) {
    ++seen.looks;
    return;
  }
  if (!is_new && budget == 0) return;  // not all of it was seen
  auto step = step_in_name(match.name);
  if (!step) step = moment.newest_step;
  seen = {.shape = shape, .since = moment.now, .step = step, .told = is_first_look_};
}

bool CheckpointWatch::is_complete(const Seen& seen, const Moment& moment) const {
  if (seen.shape.bytes == 0) return false;
  if (moment.end) return is_good_order(*moment.end) || seen.looks > 1;
  return seen.looks > 1 && moment.now - seen.since >= kSettled;
}

void CheckpointWatch::take_complete(const Moment& moment, std::vector<Report>& out) {
  for (auto& [path, seen] : seen_) {
    if (seen.told || !is_complete(seen, moment)) continue;
    seen.told = true;
    if (!seen.step) {
      complain("report.checkpoints: " + path + " has no number in its name, and no step was reported before it");
      continue;
    }
    Report report;
    report.checkpoint = ReportedCheckpoint{path.starts_with(base_) ? path.substr(base_.size()) : path, *seen.step,
                                           static_cast<std::int64_t>(seen.shape.bytes), std::nullopt};
    out.push_back(std::move(report));
  }
  // musterd takes them in the order of their steps.
  std::ranges::stable_sort(out, {}, [](const Report& report) { return report.checkpoint->step; });
}

std::optional<std::int64_t> step_in_name(std::string_view name) {
  const auto dot = name.rfind('.');
  const bool has_extension = dot != std::string_view::npos && std::ranges::any_of(name.substr(dot), is_letter);
  auto text = has_extension ? name.substr(0, dot) : name;
  while (!text.empty() && !is_digit(text.back())) text.remove_suffix(1);
  auto begin = text.size();
  while (begin > 0 && is_digit(text[begin - 1])) --begin;
  std::int64_t step = 0;
  const auto digits = text.substr(begin);
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  constexpr std::int64_t kLargestStep = 9'000'000'000'000'000;
  if (error != std::errc() || step > kLargestStep) return std::nullopt;
  return step;
}

bool is_draft_name(std::string_view name) {
  constexpr std::array<std::string_view, 5> kWords{"tmp", "temp", "partial", "incomplete", "lock"};
  for (std::size_t at = 0; at < name.size();) {
    std::size_t end = at;
    while (end < name.size() && is_letter(name[end])) ++end;
    if (std::ranges::find(kWords, name.substr(at, end - at)) != kWords.end()) return true;
    at = end + 1;
  }
  return false;
}

}  // namespace beside
