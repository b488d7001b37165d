#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "spec/exit_codes.h"
#include "spec/series.h"

namespace agent::watch {

/// A checkpoint that a program has written.
struct ReportedCheckpoint {
  std::string path;
  std::int64_t step = 0;
  std::optional<std::int64_t> bytes;
  std::optional<double> took_ms;
  bool operator==(const ReportedCheckpoint&) const = default;
};

/// Settings of a run beyond so many bytes, as JSON, are not kept.
inline constexpr std::size_t kMostConfig = 32 << 10;

/// Why a program ends, in its own words.
struct ReportedError {
  std::string type;  // "ValueError"; empty: not told
  std::string message;
  std::string trace;
  bool operator==(const ReportedError&) const = default;
};

/// One finished step.
struct ReportedStep {
  std::int64_t step = 0;
  std::vector<std::pair<std::string, double>> values;  // series and value; NaN: no number
  std::optional<double> step_ms;
  std::optional<std::int64_t> memory_bytes, memory_peak_bytes, bytes_communicated;
  bool operator==(const ReportedStep&) const = default;
};

/// The facts that one line of a report file tells. docs/report.md is the contract.
struct Report {
  std::optional<ReportedStep> step;
  std::optional<std::int64_t> total_steps;
  std::optional<std::string> config;  // a JSON object
  std::vector<spec::Series> series;
  std::optional<std::int64_t> resumed;
  std::optional<ReportedCheckpoint> checkpoint;
  std::optional<std::string> section, status;
  std::optional<ReportedError> error;
  std::optional<std::int64_t> at_ms;  // since 1970
  /// The complaint about a part of the line; the other parts count. Empty: none.
  std::string complaint;
  bool operator==(const Report&) const = default;
};

/// Why a line cannot be read at all.
struct BadLine {
  std::string why;
};

/// `line` without its newline. NaN, Infinity and -Infinity, which Python writes, are read as null. A key with a value
/// of another type than the contract's is a part that is wrong; an unknown key without a number is ignored.
std::variant<Report, BadLine> parse_report(std::string_view line);

/// When a source is looked at, and what is known of its program then.
struct Moment {
  std::chrono::steady_clock::time_point now = {};
  std::int64_t wall_ms = 0;                      // since 1970
  std::optional<spec::ExitStatus> end = {};      // how the program has ended; nullopt: it runs
  std::optional<std::int64_t> newest_step = {};  // the newest step that the program has told, in whatever way
};

/// The reports that one look has brought.
struct Found {
  std::vector<Report> reports;
  bool more = false;  // a next look brings more at once
};

/// One place, besides the report file, where a program that was not changed tells of its training. It reads regular
/// files alone, a bounded part of them at each look, and waits as long as their file system does. Not thread-safe.
class ReportSource {
 public:
  ReportSource() = default;
  virtual ~ReportSource() = default;
  ReportSource(const ReportSource&) = delete;
  ReportSource& operator=(const ReportSource&) = delete;

  /// The news since the last look. After the program's end, a look that brings nothing and no more is the last one.
  virtual Found look(const Moment& moment) = 0;

  /// Names what waits to be read, in a few words, as far as the last look knows; empty: nothing. Also while a look is
  /// under way.
  virtual std::string unread() const { return {}; }

  /// The complaint about this source, in one sentence; empty: none, or it was taken before.
  std::string take_complaint() { return std::exchange(complaint_, {}); }

 protected:
  /// Only the first one counts.
  void complain(const std::string& about) {
    if (!std::exchange(has_complained_, true)) complaint_ = about;
  }

 private:
  std::string complaint_;
  bool has_complained_ = false;
};

/// Follows a report file. It reads regular files alone, and waits as long as their file system does.
class ReportTail {
 public:
  explicit ReportTail(std::filesystem::path file) : file_(std::move(file)) {}

  /// The next lines that are whole, at most kMostAtOnce bytes of them. With `ended`, when the program has ended, a last
  /// line without its newline counts too. Without `more` there is no more now; with it, lines may have been read that
  /// hold no report.
  Found read(bool ended = false);

  /// Before the first read: begins with the first line that begins after so many bytes. Lines are then counted from
  /// there.
  void skip_to(std::uint64_t offset) {
    offset_ = offset;
    skips_ = true;
  }
  /// Bytes read so far.
  std::uint64_t offset() const { return offset_; }
  /// Lines that could not be read, or only in part.
  std::uint64_t bad_lines() const { return bad_lines_; }
  /// The complaint about the first of these lines, with its number; nullopt: there is no such line.
  const std::optional<std::string>& first_complaint() const { return first_complaint_; }

  static constexpr std::size_t kMostAtOnce = 1 << 20;

 private:
  void take(std::string_view line, std::vector<Report>& out);
  void complain(const std::string& why);

  const std::filesystem::path file_;
  std::uint64_t offset_ = 0, line_ = 0, bad_lines_ = 0;
  bool skips_ = false;  // the offset is inside a line that is too long
  std::optional<std::string> first_complaint_;
};

}  // namespace agent::watch
