#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/watch/report.h"
#include "spec/exit_codes.h"

namespace agent::watch {

/// When a source is looked at, and what is known of its program then.
struct Moment {
  std::chrono::steady_clock::time_point now = {};
  std::int64_t wall_ms = 0;                      // since 1970
  std::optional<spec::ExitStatus> end = {};      // how the program has ended; nullopt: it runs
  std::optional<std::int64_t> newest_step = {};  // the newest step that the program has told, in whatever way
};

/// What one look has brought.
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

  /// What is new since the last look. After the program's end, a look that brings nothing and no more is the last one.
  virtual Found look(const Moment& moment) = 0;

  /// What waits to be read, in a few words, as far as the last look knows; empty: nothing. Also while a look is under
  /// way.
  virtual std::string unread() const { return {}; }

  /// What is wrong with this source, in one sentence; empty: nothing, or it was taken before.
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

}  // namespace agent::watch
