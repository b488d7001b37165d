#include "agent/report/report_sources.h"

#include <cstdio>
#include <system_error>
#include <thread>
#include <utility>

#include "agent/rank/jsonl_reporter.h"
#include "agent/watch/checkpoint_watch.h"
#include "agent/watch/folder_walk.h"
#include "agent/watch/log_watch.h"
#include "agent/watch/tensorboard_watch.h"
#include "spec/rank_path.h"

namespace agent::report {

Sources::Sources(std::vector<std::shared_ptr<watch::ReportSource>> sources, const std::string& trouble) {
  for (auto& source : sources) all_.push_back({std::move(source)});
  complain(trouble);
}

// In the agent's own log too. The program goes on.
void Sources::complain(const std::string& about) {
  if (about.empty()) return;
  std::fprintf(stderr, "muster: %s\n", about.c_str());
  if (trouble_.empty()) trouble_ = about;
}

void Sources::begin(Clock::time_point until) {
  start(std::nullopt, std::nullopt);
  for (const auto& one : all_) {
    if (one.looking.valid()) one.looking.wait_until(until);
  }
}

void Sources::start(const std::optional<spec::ExitStatus>& end, std::optional<std::int64_t> newest_step) {
  const watch::Moment moment{Clock::now(), rank::now_ms(), end, newest_step};
  for (auto& one : all_) {
    if (one.is_done || one.looking.valid()) continue;
    std::packaged_task<watch::Found()> task([source = one.source, moment] { return source->look(moment); });
    auto looking = task.get_future();
    try {
      std::thread(std::move(task)).detach();
    } catch (const std::system_error&) {  // no more threads now
      continue;
    }
    one.looking = std::move(looking);
    one.began_ended = end.has_value();
  }
}

watch::Found Sources::take(Clock::time_point until) {
  watch::Found all;
  for (auto& one : all_) {
    if (!one.looking.valid() || one.looking.wait_until(until) != std::future_status::ready) continue;
    auto found = one.looking.get();
    complain(one.source->take_complaint());
    one.is_done = one.began_ended && found.reports.empty() && !found.more;
    all.more = all.more || found.more;
    for (auto& report : found.reports) all.reports.push_back(std::move(report));
  }
  return all;
}

bool Sources::is_done() const {
  for (const auto& one : all_) {
    if (!one.is_done) return false;
  }
  return true;
}

std::string Sources::give_up(std::size_t untold) {
  std::string left;
  for (const auto& one : all_) {
    const auto unread = one.is_done ? std::string() : one.source->unread();
    if (!unread.empty()) left += (left.empty() ? "" : " and ") + unread;
  }
  if (!left.empty()) left += " were not searched";
  if (untold > 0) left += left.empty() ? "" : ", and ";
  if (untold > 0) left += untold == 1 ? "one report was not told" : std::to_string(untold) + " reports were not told";
  if (left.empty()) return left;
  left = "the controller took reports too slowly after the program's end, so " + left;
  complain(left);
  return left;
}

Sources make_sources(const spec::ReportSources& wanted, const SourcesPlace& place) {
  using watch::Wildcards;
  std::vector<std::shared_ptr<watch::ReportSource>> sources;
  if (!wanted.log.empty()) sources.push_back(std::make_shared<watch::LogWatch>(place.log, wanted.log));
  std::string trouble;
  const auto expanded = [&](const char* key, const std::string& text, bool is_pattern) {
    const auto out = spec::expand_rank_path(text, [&](const std::string& name) -> std::optional<std::string> {
      const auto found = place.environment.find(name);
      if (found == place.environment.end()) return std::nullopt;
      return is_pattern ? Wildcards::plain(found->second) : found->second;
    });
    if (out.problem.empty()) return out.path;
    trouble += (trouble.empty() ? "" : "; ") + std::string(key) + " is not looked for: " + out.problem;
    return std::string();
  };
  if (place.rank != 0) return Sources(std::move(sources));
  auto pattern = expanded("report.checkpoints", wanted.checkpoints, true);
  if (!pattern.empty()) {
    if (pattern.front() != '/') pattern = Wildcards::plain(place.working_folder) + "/" + pattern;
    sources.push_back(std::make_shared<watch::CheckpointWatch>(pattern, place.working_folder));
  }
  const auto folder = expanded("report.tensorboard", wanted.tensorboard, false);
  if (!folder.empty()) {
    const auto path = (std::filesystem::path(place.working_folder) / folder).lexically_normal();
    sources.push_back(
        std::make_shared<watch::TensorboardWatch>((path.has_filename() ? path : path.parent_path()).string()));
  }
  return Sources(std::move(sources), trouble);
}

}  // namespace agent::report
