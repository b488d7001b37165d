#include "agent/watch/tensorboard_watch.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "agent/watch/folder_walk.h"
#include "agent/watch/regular_file.h"
#include "spec/series.h"

namespace agent::watch {
namespace {

constexpr std::int64_t kLargestStep = 9'000'000'000'000'000;

struct EventFile {
  std::string path;
  std::uint64_t size = 0;
  std::int64_t changed_ns = 0;
};

/// As TensorBoard itself knows its files.
bool is_event_file(const std::string& name) {
  return name.find("tfevents") != std::string::npos;
}

std::string folder_of(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}
std::string last_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

bool is_held_out_folder(const std::string& name) {
  constexpr std::array<std::string_view, 7> kNames{"validation", "val", "valid", "eval", "evaluation", "test", "dev"};
  return std::ranges::find(kNames, name) != kNames.end();
}

}  // namespace

Found TensorboardWatch::look(const Moment& moment) {
  if (moment.end || moment.now >= next_search_) {
    const auto began = std::chrono::steady_clock::now();
    search();
    next_search_ = moment.now + kPauses * (std::chrono::steady_clock::now() - began);
    if (moment.end && files_.empty()) complain("report.tensorboard: there is no event file in " + folder_);
  }
  Found found;
  if (std::exchange(is_first_look_, false)) return found;
  std::size_t budget = kMostAtOnce;
  const auto first = files_.lower_bound(next_file_);
  const auto read_all = [&](auto from, auto until) {
    for (; from != until; ++from) {
      if (!from->second.is_followed) continue;
      if (!read(from->first, from->second, budget, found.reports)) continue;
      next_file_ = from->first + '\0';  // the next look begins behind this file
      found.more = true;
      if (budget == 0) return;
    }
  };
  read_all(first, files_.end());
  if (budget > 0) read_all(files_.begin(), first);
  // Several files: in the order in which the program wrote.
  std::ranges::stable_sort(found.reports, {}, [](const Report& report) { return report.at_ms.value_or(0); });
  return found;
}

void TensorboardWatch::search() {
  std::size_t budget = kMostEntries;
  std::vector<EventFile> there;
  walk_folder(folder_, kDeepest, Links::kFollowed, budget, [&there](const FolderEntry& entry) {
    if (!S_ISREG(entry.status.st_mode) || !is_event_file(entry.name)) return;
    there.push_back({entry.path, static_cast<std::uint64_t>(entry.status.st_size), changed_ns(entry.status)});
  });
  if (budget == 0) {
    complain("report.tensorboard: there are over " + std::to_string(kMostEntries) +
             " files in the folder; some are left out");
  }
  if (there.size() > kMostFiles && !is_first_look_) {
    std::ranges::sort(there, std::greater(), &EventFile::changed_ns);
    there.resize(kMostFiles);
  }
  for (const auto& file : there) files_.try_emplace(file.path, File{.offset = is_first_look_ ? file.size : 0});
}

bool TensorboardWatch::read(const std::string& path, File& file, std::size_t& budget, std::vector<Report>& out) {
  const auto part = read_part(path, file.offset, budget);
  if (part.size < file.offset) file.offset = 0;  // written anew under the same name
  if (part.bytes.empty()) return false;
  budget -= part.bytes.size();
  const bool is_cut = file.offset + part.bytes.size() < part.size;
  const auto read = read_events(part.bytes);
  for (const auto& event : read.events) {
    auto report = report_of(event, folder_of(path));
    if (report.step->values.empty() || event.step < 0 || event.step > kLargestStep) continue;
    const bool joins = !out.empty() && out.back().step->step == event.step && out.back().at_ms == report.at_ms;
    if (joins) {
      auto& values = out.back().step->values;
      values.insert(values.end(), report.step->values.begin(), report.step->values.end());
    } else {
      out.push_back(std::move(report));
    }
  }
  file.offset += read.taken + read.skip;
  if (read.bad_records > 0) complain("report.tensorboard: " + path + " has records whose checksum is wrong");
  file.bad_looks = read.problem.empty() || read.taken > 0 ? 0 : file.bad_looks + 1;
  if (file.bad_looks == kMostBadLooks) {
    file.is_followed = false;
    complain("report.tensorboard: " + path + " is read no further: " + read.problem);
  }
  return read.problem.empty() && (is_cut || read.skip > 0) && file.offset < part.size;
}

Report TensorboardWatch::report_of(const ScalarEvent& event, const std::string& folder) {
  Report report;
  report.step.emplace();
  report.step->step = event.step;
  if (event.at_ms > 0) report.at_ms = event.at_ms;
  for (const auto& [tag, value] : event.values) {
    const auto name = series_of(tag, folder);
    if (name.empty()) continue;
    report.step->values.emplace_back(name, std::isfinite(value) ? value : std::numeric_limits<double>::quiet_NaN());
  }
  return report;
}

std::string TensorboardWatch::series_of(const std::string& tag, const std::string& folder) {
  const auto split = last_name(folder);
  auto name = series_of_tag(tag);
  if (name.empty()) {
    complain("report.tensorboard: a tag is no name of a series, since it is empty or longer than " +
             std::to_string(spec::kLongestSeries) + " characters");
    return {};
  }
  const bool is_held_out = folder != folder_ && is_held_out_folder(split);
  if (!is_held_out) {
    if (tag_folders_.size() < spec::kMostSeries) tag_folders_.try_emplace(name, folder);
    const auto first = tag_folders_.find(name);
    if (first == tag_folders_.end() || first->second == folder) return name;
  }
  return series_of_tag(split + "/" + name);
}

std::string series_of_tag(std::string_view tag) {
  std::string name;
  for (const char c : tag) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    name += letter || std::string_view("._-/@+:%").find(c) != std::string_view::npos ? c : '_';
  }
  const auto begin = name.find_first_not_of('/');
  if (begin == std::string::npos) return {};
  name = name.substr(begin, name.find_last_not_of('/') - begin + 1);
  return spec::is_series_name(name) ? name : std::string();
}

}  // namespace agent::watch
