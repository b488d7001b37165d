#include "data/prepare/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace data::prepare {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kEveryOnTerminal{200};
constexpr milliseconds kEveryElsewhere{10'000};

std::string time_text(std::int64_t seconds) {
  if (seconds < 60) return std::to_string(seconds) + " s";
  if (seconds < 3600) return std::to_string(seconds / 60) + " min " + std::to_string(seconds % 60) + " s";
  return std::to_string(seconds / 3600) + " h " + std::to_string(seconds / 60 % 60) + " min";
}

std::size_t terminal_width() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

std::string grouped(std::int64_t number) {
  auto text = std::to_string(number);
  for (auto place = static_cast<std::ptrdiff_t>(text.size()) - 3; place > 0; place -= 3) {
    text.insert(static_cast<std::size_t>(place), ",");
  }
  return text;
}

std::string progress_text(const Counts& now, std::string_view unit, milliseconds elapsed) {
  auto text = grouped(now.parts_done) + " of " + grouped(now.parts) + (now.parts == 1 ? " part, " : " parts, ") +
              grouped(now.records) + " records, " + grouped(now.elements) + " " + std::string(unit);
  const auto made = now.parts_done - now.parts_kept;
  const auto left = now.parts - now.parts_done;
  const auto records_made = now.records - now.records_kept;
  if (made > 0 && left > 0 && records_made > 0) {
    // Several parts are made at a time, so those that are not done count, too.
    const double all =
        static_cast<double>(now.records_done) / static_cast<double>(now.parts_done) * static_cast<double>(now.parts);
    const double seconds = static_cast<double>(elapsed.count()) / 1000 / static_cast<double>(records_made) *
                           std::max(0.0, all - static_cast<double>(now.records));
    text += ", " + time_text(static_cast<std::int64_t>(seconds + 0.5)) + " left";
  }
  return text;
}

Progress::Progress(std::string command, std::string unit, std::int64_t parts, milliseconds every)
    : command_(std::move(command)),
      unit_(std::move(unit)),
      is_terminal_(::isatty(STDERR_FILENO) == 1),
      every_(every.count() > 0 ? every : (is_terminal_ ? kEveryOnTerminal : kEveryElsewhere)),
      counts_{.parts = parts} {
  printer_ = std::thread([this] {
    std::unique_lock lock(mutex_);
    while (!ends_.wait_for(lock, every_, [this] { return is_over_; })) print();
  });
}

Progress::~Progress() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  ends_.notify_all();
  printer_.join();
  clear_line();
}

void Progress::add_records(std::int64_t records, std::int64_t elements) {
  const std::lock_guard lock(counting_);
  counts_.records += records;
  counts_.elements += elements;
}

void Progress::end_part(bool was_kept, std::int64_t records) {
  const std::lock_guard lock(counting_);
  if (was_kept) ++counts_.parts_kept;
  if (was_kept) counts_.records_kept += records;
  counts_.records_done += records;
  ++counts_.parts_done;
}

Counts Progress::counts() const {
  const std::lock_guard lock(counting_);
  return counts_;
}

void Progress::say(const std::string& line) {
  const std::lock_guard lock(mutex_);
  clear_line();
  std::fprintf(stderr, "%s: %s\n", command_.c_str(), line.c_str());
}

void Progress::print() {
  const auto elapsed = std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - began_);
  auto line = command_ + ": " + progress_text(counts(), unit_, elapsed);
  if (!is_terminal_) {
    std::fprintf(stderr, "%s\n", line.c_str());
    return;
  }
  // The numbers matter more than the command's name.
  if (line.size() >= terminal_width()) line.erase(0, command_.size() + 2);
  line.resize(std::min(line.size(), terminal_width() - 1));
  std::fprintf(stderr, "\r\033[K%s", line.c_str());
  std::fflush(stderr);
  is_drawn_ = true;
}

void Progress::clear_line() {
  if (std::exchange(is_drawn_, false)) std::fputs("\r\033[K", stderr);
}

}  // namespace data::prepare
