#include "agent/watch/checkpoint_watch.h"

#include <sys/stat.h>

#include <algorithm>
#include <set>
#include <utility>

#include "agent/watch/checkpoint_name.h"
#include "base/torn_save.h"

namespace agent::watch {
namespace {

constexpr const char* kRemedy =
    "; if another number of the name is its step, put the wildcard of that number into brackets, such as step-(*)-7b";

/// A program may log seldom: only so much beyond its newest step is far.
bool is_far(std::int64_t step, std::int64_t told) {
  return step / 2 > told + 50;
}

/// A quarter as fast, and more apart than the looks at a quick program can be.
bool rises_too_slowly(std::int64_t steps, std::int64_t told) {
  return steps * 4 < told && told - steps > 10;
}

/// The step of a match; nullopt: neither its group nor its name tells one.
std::optional<NamedStep> step_of(const Wildcards::Match& match, bool has_group) {
  if (!has_group) return step_in_name(match.name);
  const auto step = step_of_digits(match.group);
  return step ? std::optional(NamedStep{*step, NamedStep::By::kStep}) : std::nullopt;
}

std::int64_t order_of(const Wildcards::Match& match, bool has_group) {
  const auto step = step_of(match, has_group);
  return step ? step->step : -1;
}

bool is_good_order(const spec::ExitStatus& end) {
  return end.signal == 0 && (end.code == 0 || end.code == spec::kExitRequeue);
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
  std::ranges::sort(matches, [this](const auto& a, const auto& b) {
    return std::pair(order_of(a, pattern_.has_group()), a.path) > std::pair(order_of(b, pattern_.has_group()), b.path);
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
  const auto named = step_of(match, pattern_.has_group());
  const bool by_program = !named || (named->by == NamedStep::By::kEpoch && moment.newest_step);
  seen = {.shape = shape,
          .since = moment.now,
          .step = by_program ? moment.newest_step : named->step,
          .is_guess = !by_program && named->by == NamedStep::By::kAlone,
          .by_name = !by_program && !pattern_.has_group(),
          .told_by_program = moment.newest_step,
          .told = is_first_look_};
}

bool CheckpointWatch::is_complete(const Seen& seen, const Moment& moment) const {
  if (seen.shape.bytes == 0) return false;
  if (moment.end) return is_good_order(*moment.end) || seen.looks > 1;
  return seen.looks > 1 && moment.now - seen.since >= kSettled;
}

void CheckpointWatch::take_complete(const Moment& moment, std::vector<Report>& out) {
  for (auto& [path, seen] : seen_) {
    if (seen.told || !is_complete(seen, moment) || is_torn(path, moment)) continue;
    seen.told = true;
    if (!seen.step) {
      complain("report.checkpoints: " + path + " has no number in its name, and no step was reported before it");
      continue;
    }
    judge_name(path, seen, moment);
    Report report;
    report.checkpoint = ReportedCheckpoint{path.starts_with(base_) ? path.substr(base_.size()) : path, *seen.step,
                                           static_cast<std::int64_t>(seen.shape.bytes), std::nullopt};
    out.push_back(std::move(report));
  }
  judge_far_step(moment);
  // musterd takes them in the order of their steps.
  std::ranges::stable_sort(out, {}, [](const Report& report) { return report.checkpoint->step; });
}

// Asked anew at each look: a file may be a part of a save whose other parts have come meanwhile.
bool CheckpointWatch::is_torn(const std::string& path, const Moment& moment) {
  const auto why = base::why_torn(path, kMostEntries);
  if (!why.empty() && moment.end) {
    complain("report.checkpoints: the save of " + path + " was cut off, so it is no checkpoint: " + why);
  }
  return !why.empty();
}

/// Compares the step of a complete checkpoint with those of the program and of the one before.
void CheckpointWatch::judge_name(const std::string& path, const Seen& seen, const Moment& moment) {
  const Best now{*seen.step, seen.told_by_program, path};
  if (far_) ++since_far_;
  if (!far_ && moment.newest_step && is_far(now.step, *moment.newest_step)) {
    far_ = now;
    since_far_ = 0;
  }
  if (best_ && seen.is_guess && now.step <= best_->step && path != best_->path) {
    const bool went_on = now.told_by_program && best_->told_by_program < now.told_by_program;
    if (went_on && *now.told_by_program > now.step) {
      complain_of_name(path + " gives step " + std::to_string(now.step) + " as its last number", *now.told_by_program);
    }
  }
  judge_pace(path, seen);
  if (!best_ || now.step >= best_->step) best_ = now;
}

/// The log is read apart from the checkpoints, so the program's own step may come later.
void CheckpointWatch::judge_far_step(const Moment& moment) {
  if (!far_ || !moment.newest_step) return;
  if (!is_far(far_->step, *moment.newest_step)) return far_.reset();
  if (!moment.end && since_far_ < 2) return;
  complain_of_name(far_->path + " gives step " + std::to_string(far_->step), *moment.newest_step);
}

/// A save is seen some steps after its own, so one that is late says nothing. Several in a row are late only if the
/// program has all but ceased to save.
void CheckpointWatch::judge_pace(const std::string& path, const Seen& seen) {
  const auto before = std::exchange(before_, Best{*seen.step, seen.told_by_program, path});
  if (!before || !seen.by_name || !before->told_by_program || !seen.told_by_program) return;
  const auto steps = *seen.step - before->step, told = *seen.told_by_program - *before->told_by_program;
  if (told <= 0) return;  // seen in one look
  misfits_ = steps > 0 && rises_too_slowly(steps, told) ? misfits_ + 1 : 0;
  if (misfits_ < kMisfits || *seen.step >= *seen.told_by_program) return;
  complain_of_name(path + " gives step " + std::to_string(*seen.step), *seen.told_by_program);
}

void CheckpointWatch::complain_of_name(const std::string& what, std::int64_t told) {
  complain("report.checkpoints: the names do not fit the steps that the program reports: " + what +
           ", and the program has reported step " + std::to_string(told) + kRemedy);
}

}  // namespace agent::watch
