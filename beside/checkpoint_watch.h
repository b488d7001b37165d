#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "beside/report_source.h"
#include "beside/wildcards.h"

namespace beside {

/// Reports the checkpoints of a program by the paths that match a pattern.
///
/// What is there at the first look is old. A match that is new, or has changed since, is a checkpoint when it is
/// complete: it holds something, and its files, sizes and times have stayed the same for kSettled over two looks. When
/// the program has ended in good order, no more is awaited. When it has ended otherwise, two looks that saw the same
/// must do, since the program may have died while it wrote. Names of drafts ("step-40.tmp") are no checkpoints.
///
/// The step is the last number of the name that a wildcard matched, without its extension. Without such a number it is
/// the newest step that the program has told by then; without that too, the match is no checkpoint.
class CheckpointWatch : public ReportSource {
 public:
  /// `pattern` as of Wildcards. Paths are told without `base` and a slash at their beginning.
  CheckpointWatch(const std::string& pattern, std::string base);

  Found look(const Moment& moment) override;

  static constexpr std::chrono::milliseconds kSettled{1'000};
  /// Names that a pattern is compared with, and files of matches, in one look.
  static constexpr std::size_t kMostEntries = 5'000;
  static constexpr int kDeepest = 6;
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
    int looks = 1;      // that saw this shape
    bool told = false;  // or old
  };
  static Shape shape_of(const std::string& path, std::size_t& budget);
  void look_at(const Wildcards::Match& match, const Moment& moment, std::size_t& budget);
  bool is_complete(const Seen& seen, const Moment& moment) const;
  void take_complete(const Moment& moment, std::vector<Report>& out);

  const std::string pattern_text_;
  const Wildcards pattern_;
  const std::string base_;
  bool is_first_look_ = true, has_matched_ = false;
  std::map<std::string, Seen> seen_;
  std::chrono::steady_clock::time_point next_look_{};
};

/// The last number of the name of a checkpoint without its extension; nullopt: it has none.
std::optional<std::int64_t> step_in_name(std::string_view name);
/// Whether the name is that of a file or folder that is being written: a word of it is tmp, temp, partial, incomplete
/// or lock.
bool is_draft_name(std::string_view name);

}  // namespace beside
