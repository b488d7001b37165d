#include "agent/report/relay.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <iterator>
#include <system_error>

#include "agent/rank/jsonl_reporter.h"
#include "agent/watch/checkpoint_watch.h"
#include "agent/watch/folder_walk.h"
#include "agent/watch/log_watch.h"
#include "agent/watch/tensorboard_watch.h"
#include "base/signals_blocked.h"
#include "spec/rank_path.h"

namespace agent::report {
namespace {

/// Begins `look` in a thread of its own, which a disk may hold up. Not valid: the system has no more threads now.
std::future<watch::Found> look_apart(std::function<watch::Found()> look) {
  std::packaged_task<watch::Found()> task(std::move(look));
  auto found = task.get_future();
  try {
    std::thread(std::move(task)).detach();
  } catch (const std::system_error&) {
    return {};
  }
  return found;
}

}  // namespace

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
    one.looking = look_apart([source = one.source, moment] { return source->look(moment); });
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

namespace {

/// nullopt: it is a name of the program's own.
std::optional<rank::Section> section_of(const std::string& name) {
  if (name == "init") return rank::Section::kInit;
  if (name == "data") return rank::Section::kData;
  if (name == "step") return rank::Section::kStep;
  if (name == "checkpoint") return rank::Section::kCheckpoint;
  if (name == "end") return rank::Section::kDone;
  return std::nullopt;
}

}  // namespace

void Teller::tell(const watch::Report& report, rank::Reporter& to) {
  if (!report.series.empty()) declare(report.series, to);
  if (report.resumed) to.resumed_from(*report.resumed);
  if (report.section) enter(*report.section, to);
  if (report.status) words_.status = *report.status;
  if (report.total_steps) words_.total_steps = *report.total_steps;
  if (report.config) words_.config = *report.config;
  if (report.step) step(report, to);
  if (report.checkpoint) {
    const auto& saved = *report.checkpoint;
    to.checkpoint_saved_at(saved.path, saved.step, saved.bytes.value_or(-1), saved.took_ms.value_or(0));
  }
  if (report.error) words_.error = {report.error->type, report.error->message, report.error->trace};
}

void Teller::declare(const std::vector<spec::Series>& series, rank::Reporter& to) {
  for (const auto& one : series) {
    std::erase_if(series_, [&](const auto& other) { return other.name == one.name; });
    series_.push_back(one);
  }
  to.declare(series_);
}

void Teller::step(const watch::Report& report, rank::Reporter& to) {
  words_.error.reset();  // the program went on after it
  const auto& step = *report.step;
  rank::StepReport out;
  out.step = step.step;
  for (const auto& [name, value] : step.values) out.values.push_back({name, value});
  out.at_ms = report.at_ms.value_or(rank::now_ms());
  out.step_ms = step.step_ms.value_or(step_ms_since_last(step.step, out.at_ms));
  const bool is_new = !last_step_ || step.step > last_step_->first;
  last_step_ = {step.step, out.at_ms};
  out.memory_bytes = step.memory_bytes.value_or(0);
  out.memory_peak_bytes = step.memory_peak_bytes.value_or(0);
  out.bytes_communicated = step.bytes_communicated.value_or(-1);
  to.step(out);
  // After the end a program may tell more of its last step, or train once more.
  if (section_ == rank::Section::kInit || (section_ == rank::Section::kDone && is_new)) {
    enter(rank::Section::kStep, to);
  }
}

void Teller::enter(rank::Section section, rank::Reporter& to) {
  words_.section.clear();
  if (std::exchange(section_, section) != section) to.section(section);
}

// A controller that does not know such names takes it for a step.
void Teller::enter(const std::string& name, rank::Reporter& to) {
  if (const auto known = section_of(name)) return enter(*known, to);
  enter(rank::Section::kStep, to);
  words_.section = name;
}

/// 0: not known.
double Teller::step_ms_since_last(std::int64_t step, std::int64_t at_ms) const {
  if (!last_step_ || step <= last_step_->first || at_ms < last_step_->second) return 0;
  return static_cast<double>(at_ms - last_step_->second) / static_cast<double>(step - last_step_->first);
}

namespace {

/// How long a turn waits for the disk.
constexpr std::chrono::milliseconds kDiskPatience{500};

}  // namespace

Relay::Relay(std::filesystem::path file, Connect connect, Sources sources)
    : connect_(std::move(connect)),
      tail_(std::make_shared<watch::ReportTail>(std::move(file))),
      sources_(std::move(sources)) {
  const base::SignalsBlocked blocked;
  thread_ = std::thread([this] { run(); });
}

Relay::~Relay() {
  quit();
  thread_.join();
}

void Relay::quit() {
  const std::lock_guard lock(mutex_);
  quit_ = true;
  wake_.notify_all();
}

void Relay::ended(spec::ExitStatus exit) {
  const std::lock_guard lock(mutex_);
  if (!exit_) ended_at_ = Clock::now();
  if (!exit_) exit_ = exit;
  wake_.notify_all();
}

bool Relay::wait(Clock::time_point until) {
  Lock lock(mutex_);
  return wake_.wait_until(lock, until, [this] { return done_; });
}

bool Relay::wait_before_end(Clock::time_point until) {
  Lock lock(mutex_);
  while (!done_) {
    const auto now = Clock::now();
    const auto due = end_is_due();
    if (now >= due) return true;
    if (now >= until) return false;
    // Reports that are taken meanwhile make `due` later.
    wake_.wait_until(lock, std::min(due, until));
  }
  return true;
}

Relay::Clock::time_point Relay::end_is_due() const {
  const bool success = exit_ && exit_->code == 0 && exit_->signal == 0;
  return stands_until(success ? kStandsLong : kStands);
}

Relay::Clock::time_point Relay::stands_until(std::chrono::milliseconds stands) const {
  if (!has_told_) return ended_at_ + kQuietEnd;
  // A controller that is busy may take the first one late.
  return std::min(std::max(taken_at_, ended_at_) + stands, ended_at_ + kLongestEnd);
}

std::string Relay::finish(Clock::time_point until) {
  {
    Lock lock(mutex_);
    while (!done_ && Clock::now() < std::min(until, stands_until(kStandsLong))) {
      wake_.wait_until(lock, std::min(until, stands_until(kStandsLong)));
    }
  }
  quit();
  Lock lock(mutex_);
  wake_.wait(lock, [this] { return done_; });
  return left_out_;
}

void Relay::run() {
  auto next_look = kLook;
  bool told_all = false;
  Lock lock(mutex_);
  while (!quit_) {
    const auto exit = exit_;
    lock.unlock();
    try {
      told_all = look(exit);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "muster: the reports of a rank are not told to the controller: %s\n", error.what());
      told_all = true;
    }
    lock.lock();
    if (told_all) break;
    if (exit && has_news_ && !waits_for_room_) continue;
    next_look = waits_for_room_ ? kLookForRoom
                : has_more_     ? kLookForMore
                : has_news_     ? kLook
                                : std::min(next_look * 2, kLookAtMost);
    wake_.wait_for(lock, next_look, [&] { return quit_ || (exit_ && !exit); });
  }
  const auto cut_short = told_all ? std::nullopt : exit_;
  lock.unlock();
  if (cut_short) give_up(*cut_short);
  // Reports that `reporter_` could not tell are in its file before the rank's end is known.
  reporter_.reset();
  lock.lock();
  done_ = true;
  wake_.notify_all();
}

bool Relay::look(const std::optional<spec::ExitStatus>& exit) {
  note_taken();
  sources_.start(exit, teller_.newest_step());
  const auto until = Clock::now() + kDiskPatience;
  waits_for_room_ = !tell({});
  if (waits_for_room_) return false;
  auto own = read(exit.has_value());
  const bool blind = !own, own_more = own && own->more;
  const bool own_ends = own && !own_more && reading_began_ended_;
  bool told = true, found_more = false;
  if (own) {
    bad_lines_ = tail_->bad_lines();
    first_bad_line_ = tail_->first_complaint().value_or("");
    told = tell(std::move(own->reports));
  }
  untold_is_own_ = !told;
  own_is_told_ = own_ends && told;
  if (told) {
    auto found = sources_.take(until);
    has_more_ = found.more;
    found_more = found.more || !found.reports.empty();
    told = tell(std::move(found.reports));
  }
  has_news_ = own_more || found_more;
  waits_for_room_ = !told;
  tell_words(blind);
  if (blind || has_news_ || waits_for_room_ || !own_is_told_ || !sources_.is_done()) return false;
  if (!reporter_) return true;
  // The reporter offers its last reports for a short time. More than that are waited for while they are taken.
  if (reporter_->backlog().is_long) {
    const std::lock_guard lock(mutex_);
    waits_for_room_ = Clock::now() < stands_until(kStandsLong);
    if (waits_for_room_) return false;
  }
  leave(*exit);
  return true;
}

// A rank that was killed is waited for, so its end is not to look like one in good order, for which the reporter takes
// its time.
void Relay::leave(const spec::ExitStatus& exit) {
  reporter_->leaving(exit.signal != 0 ? 128 + exit.signal : exit.code, "");
}

void Relay::note_taken() {
  if (!reporter_) return;
  const auto reports = reporter_->backlog().reports;
  // Some of what it was told a turn ago is no longer there.
  if (std::exchange(backlog_, reports) <= reports) return;
  const std::lock_guard lock(mutex_);
  taken_at_ = Clock::now();
}

std::optional<watch::Found> Relay::read(bool ended) {
  if (!reading_.valid()) {
    reading_ = look_apart([tail = tail_, ended] { return tail->read(ended); });
    reading_began_ended_ = ended;
  }
  if (!reading_.valid() || reading_.wait_for(kDiskPatience) != std::future_status::ready) return std::nullopt;
  auto found = reading_.get();
  complain_once();
  return found;
}

// In the agent's own log. The program goes on.
void Relay::complain_once() {
  if (!tail_->first_complaint() || std::exchange(complained_, true)) return;
  std::fprintf(stderr, "muster: the report file has lines that cannot be read; the first: %s\n",
               tail_->first_complaint()->c_str());
}

bool Relay::tell(std::vector<watch::Report> reports) {
  std::ranges::move(reports, std::back_inserter(untold_));
  if (untold_.empty()) return true;
  connect_once();
  for (; !untold_.empty() && !reporter_->backlog().is_full; untold_.pop_front()) {
    teller_.tell(untold_.front(), *reporter_);
  }
  backlog_ = reporter_->backlog().reports;
  return untold_.empty();
}

void Relay::connect_once() {
  has_told_ = true;
  if (!reporter_) reporter_ = connect_();
}

// Untold reports go into the reporter's file. The controller itself reads a report file that was not told to its end.
void Relay::give_up(const spec::ExitStatus& exit) {
  try {
    left_out_ = sources_.give_up(untold_is_own_ ? 0 : untold_.size());
    tell_words(!own_is_told_);
    if (reporter_) leave(exit);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "muster: %s\n", error.what());
  }
}

void Relay::tell_words(bool blind) {
  auto words = teller_.words();
  words.blind = blind;
  words.bad_lines = bad_lines_;
  words.first_bad_line = first_bad_line_;
  words.source_trouble = sources_.trouble();
  const bool is_worth_a_call = words.bad_lines > 0 || !words.source_trouble.empty();
  if (words == told_words_ || (!reporter_ && !is_worth_a_call)) return;
  connect_once();
  reporter_->program(words);
  told_words_ = std::move(words);
}

}  // namespace agent::report
