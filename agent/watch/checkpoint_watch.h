#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/watch/folder_walk.h"
#include "agent/watch/report.h"

namespace agent::watch {

/// Reports the checkpoints of a program by the paths that match a pattern.
///
/// A match that is there at the first look is old. A match that is new, or has changed since, is a checkpoint when it
/// is complete: it holds something, its files, sizes and times have stayed the same for kSettled over two looks, and
/// nothing shows that it was cut off (base::why_torn). When the program has ended in good order, no more is awaited.
/// When it has ended otherwise, two looks that saw the same must do, since the program may have died while it wrote.
///
/// Names of drafts ("step-40.tmp") are no checkpoints.
///
/// The step is what the pattern's group matched; else what step_in_name() finds in the name that the last wildcard
/// matched. Without such a number, or with that of an epoch alone, it is the newest step that the program has told by
/// then. Without that too the match is no checkpoint, but the epoch's number will do.
///
/// Names that do not fit what the program tells are told once: a step far beyond the program's own, one that does not
/// rise though the program goes on, and steps that rise less than a quarter as fast as the program's own, kMisfits
/// times in a row, such as the epochs of "model_17.pt".
class CheckpointWatch : public ReportSource {
 public:
  /// `pattern` as of Wildcards. Paths are told without `base` and a slash at their beginning.
  CheckpointWatch(const std::string& pattern, std::string base);

  Found look(const Moment& moment) override;

  static constexpr std::chrono::milliseconds kSettled{1'000};
  /// Names that a pattern is compared with, and files of matches, in one look.
  static constexpr std::size_t kMostEntries = 5'000;
  static constexpr int kDeepest = 6;
  static constexpr int kMisfits = 2;
  /// A look that took some time is followed by a pause so many times as long.
  static constexpr int kPauses = 20;

 private:
  /// By what a change shows.
  struct Shape {
    std::uint64_t files = 0, bytes = 0;
    std::int64_t newest_ns = 0;
    bool operator==(const Shape&) const = default;
  };
  struct Seen {
    Shape shape;
    std::chrono::steady_clock::time_point since;
    std::optional<std::int64_t> step;
    bool is_guess = false;                        // the step is a number of the name that no word explains
    bool by_name = false;                         // the step is a number of the name that no group of the pattern chose
    std::optional<std::int64_t> told_by_program;  // the newest step by then
    int looks = 1;                                // that saw this shape
    bool told = false;                            // or old
  };
  static Shape shape_of(const std::string& path, std::size_t& budget);
  void look_at(const Wildcards::Match& match, const Moment& moment, std::size_t& budget);
  bool is_complete(const Seen& seen, const Moment& moment) const;
  void take_complete(const Moment& moment, std::vector<Report>& out);
  bool is_torn(const std::string& path, const Moment& moment);
  void judge_name(const std::string& path, const Seen& seen, const Moment& moment);
  void judge_far_step(const Moment& moment);
  void judge_pace(const std::string& path, const Seen& seen);
  void complain_of_name(const std::string& what, std::int64_t told);

  const std::string pattern_text_;
  const Wildcards pattern_;
  const std::string base_;
  bool is_first_look_ = true, has_matched_ = false;
  std::map<std::string, Seen> seen_;
  /// The newest checkpoint with the greatest step: that step, the program's own by then, and its path.
  struct Best {
    std::int64_t step = 0;
    std::optional<std::int64_t> told_by_program;
    std::string path;
  };
  std::optional<Best> best_;
  std::optional<Best> far_;     // a step far beyond the program's own, unless the program comes there
  int since_far_ = 0;           // complete checkpoints after it
  std::optional<Best> before_;  // the complete checkpoint before
  int misfits_ = 0;             // in a row
  std::chrono::steady_clock::time_point next_look_{};
};

}  // namespace agent::watch
