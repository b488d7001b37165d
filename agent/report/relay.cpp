#include "agent/report/relay.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <system_error>
#include <utility>

#include "os/signals_blocked.h"
#include "rank/jsonl_reporter.h"

namespace agent::report {
namespace {

/// How long a turn waits for the disk.
constexpr std::chrono::milliseconds kDiskPatience{500};

/// nullopt: it is a name of the program's own.
std::optional<worker::Section> section_of(const std::string& name) {
  if (name == "init") return worker::Section::kInit;
  if (name == "data") return worker::Section::kData;
  if (name == "step") return worker::Section::kStep;
  if (name == "checkpoint") return worker::Section::kCheckpoint;
  return std::nullopt;
}

}  // namespace

Relay::Relay(std::filesystem::path file, Connect connect, Sources sources)
    : connect_(std::move(connect)),
      tail_(std::make_shared<beside::ReportTail>(std::move(file))),
      sources_(std::move(sources)) {
  const os::SignalsBlocked blocked;
  thread_ = std::thread([this] { run(); });
}

Relay::~Relay() {
  {
    const std::lock_guard lock(mutex_);
    quit_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Relay::ended(contract::ExitStatus exit) {
  const std::lock_guard lock(mutex_);
  if (!exit_) exit_ = exit;
  wake_.notify_all();
}

bool Relay::wait(std::chrono::steady_clock::time_point until) {
  Lock lock(mutex_);
  return wake_.wait_until(lock, until, [this] { return done_; });
}

void Relay::run() {
  auto next_look = kLook;
  Lock lock(mutex_);
  while (!quit_) {
    const auto exit = exit_;
    lock.unlock();
    bool told_all = false;
    try {
      told_all = look(exit);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "muster: the reports of a rank are not told to the controller: %s\n", error.what());
      told_all = true;
    }
    lock.lock();
    if (told_all) break;
    if (exit && has_news_) continue;
    next_look = has_news_ ? kLook : std::min(next_look * 2, kLookAtMost);
    wake_.wait_for(lock, next_look, [&] { return quit_ || (exit_ && !exit); });
  }
  lock.unlock();
  // What it could not tell is in its file before the rank's end is known.
  reporter_.reset();
  lock.lock();
  done_ = true;
  wake_.notify_all();
}

bool Relay::look(const std::optional<contract::ExitStatus>& exit) {
  sources_.start(exit, last_step_ ? std::optional(last_step_->first) : std::nullopt);
  const auto until = Sources::Clock::now() + kDiskPatience;
  const auto reports = read(exit.has_value());
  has_news_ = reports && !reports->empty();
  if (has_news_) tell(*reports);
  const auto found = sources_.take(until);
  if (!found.reports.empty()) tell(found.reports);
  has_news_ = has_news_ || found.more || !found.reports.empty();
  words_.blind = !reports;
  words_.bad_lines = reports ? tail_->bad_lines() : words_.bad_lines;
  if (reports && tail_->first_complaint()) words_.first_bad_line = *tail_->first_complaint();
  tell_words();
  if (!reports || has_news_ || !reading_began_ended_ || !sources_.is_done()) return false;
  // A rank that was killed is waited for, so its end is not to look like one in good order, for which the reporter
  // takes its time.
  if (reporter_) reporter_->leaving(exit->signal != 0 ? 128 + exit->signal : exit->code, "");
  return true;
}

std::optional<std::vector<beside::Report>> Relay::read(bool ended) {
  if (!reading_.valid()) {
    std::packaged_task<std::vector<beside::Report>()> task([tail = tail_, ended] { return tail->read(ended); });
    auto reading = task.get_future();
    try {
      std::thread(std::move(task)).detach();
    } catch (const std::system_error&) {  // no more threads now
      return std::nullopt;
    }
    reading_ = std::move(reading);
    reading_began_ended_ = ended;
  }
  if (reading_.wait_for(kDiskPatience) != std::future_status::ready) return std::nullopt;
  auto reports = reading_.get();
  complain_once();
  return reports;
}

// In the agent's own log. The program goes on.
void Relay::complain_once() {
  if (!tail_->first_complaint() || std::exchange(complained_, true)) return;
  std::fprintf(stderr, "muster: the report file has lines that cannot be read; the first: %s\n",
               tail_->first_complaint()->c_str());
}

void Relay::tell(const std::vector<beside::Report>& reports) {
  has_told_ = true;
  if (!reporter_) reporter_ = connect_();
  for (const auto& report : reports) tell(report);
}

void Relay::tell_words() {
  if (words_ == told_words_ || (!reporter_ && words_.bad_lines == 0)) return;
  has_told_ = true;
  if (!reporter_) reporter_ = connect_();
  reporter_->program(words_);
  told_words_ = words_;
}

void Relay::enter(worker::Section section) {
  words_.section.clear();
  if (std::exchange(section_, section) != section) reporter_->section(section);
}

// A controller that does not know such names takes it for a step.
void Relay::enter(const std::string& name) {
  if (const auto known = section_of(name)) return enter(*known);
  enter(worker::Section::kStep);
  words_.section = name;
}

/// 0: not known.
double Relay::step_ms_since_last(std::int64_t step, std::int64_t at_ms) const {
  if (!last_step_ || step <= last_step_->first || at_ms < last_step_->second) return 0;
  return static_cast<double>(at_ms - last_step_->second) / static_cast<double>(step - last_step_->first);
}

void Relay::tell(const beside::Report& report) {
  if (!report.series.empty()) {
    for (const auto& one : report.series) {
      std::erase_if(series_, [&](const auto& other) { return other.name == one.name; });
      series_.push_back(one);
    }
    reporter_->declare(series_);
  }
  if (report.resumed) reporter_->resumed_from(*report.resumed);
  if (report.section) enter(*report.section);
  if (report.status) words_.status = *report.status;
  if (report.total_steps) words_.total_steps = *report.total_steps;
  if (report.config) words_.config = *report.config;
  if (report.step) {
    words_.error.reset();  // the program went on after it
    const auto& step = *report.step;
    worker::StepReport out;
    out.step = step.step;
    for (const auto& [name, value] : step.values) out.values.push_back({name, value});
    out.at_ms = report.at_ms.value_or(worker::now_ms());
    out.step_ms = step.step_ms.value_or(step_ms_since_last(step.step, out.at_ms));
    last_step_ = {step.step, out.at_ms};
    out.memory_bytes = step.memory_bytes.value_or(0);
    out.memory_peak_bytes = step.memory_peak_bytes.value_or(0);
    out.bytes_communicated = step.bytes_communicated.value_or(0);
    reporter_->step(out);
    if (section_ == worker::Section::kInit) enter(worker::Section::kStep);
  }
  if (report.checkpoint) {
    const auto& saved = *report.checkpoint;
    reporter_->checkpoint_saved_at(saved.path, saved.step, saved.bytes.value_or(0), saved.took_ms.value_or(0));
  }
  if (report.error) words_.error = {report.error->type, report.error->message, report.error->trace};
}

}  // namespace agent::report
