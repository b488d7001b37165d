#include "agent/report/relay.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <system_error>
#include <utility>

#include "os/signals_blocked.h"

namespace agent::report {
namespace {

/// How long a turn waits for the disk.
constexpr std::chrono::milliseconds kDiskPatience{500};

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
  sources_.start(exit, teller_.newest_step());
  const auto until = Sources::Clock::now() + kDiskPatience;
  const auto own = read(exit.has_value());
  if (own && !own->reports.empty()) tell(own->reports);
  const auto found = sources_.take(until);
  if (!found.reports.empty()) tell(found.reports);
  has_news_ = (own && own->more) || found.more || !found.reports.empty();
  if (own) {
    bad_lines_ = tail_->bad_lines();
    first_bad_line_ = tail_->first_complaint().value_or("");
  }
  tell_words(!own);
  if (!own || has_news_ || !reading_began_ended_ || !sources_.is_done()) return false;
  // A rank that was killed is waited for, so its end is not to look like one in good order, for which the reporter
  // takes its time.
  if (reporter_) reporter_->leaving(exit->signal != 0 ? 128 + exit->signal : exit->code, "");
  return true;
}

std::optional<beside::Found> Relay::read(bool ended) {
  if (!reading_.valid()) {
    std::packaged_task<beside::Found()> task([tail = tail_, ended] { return tail->read(ended); });
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

void Relay::tell(const std::vector<beside::Report>& reports) {
  has_told_ = true;
  if (!reporter_) reporter_ = connect_();
  for (const auto& report : reports) teller_.tell(report, *reporter_);
}

void Relay::tell_words(bool blind) {
  auto words = teller_.words();
  words.blind = blind;
  words.bad_lines = bad_lines_;
  words.first_bad_line = first_bad_line_;
  words.source_trouble = sources_.trouble();
  const bool is_worth_a_call = words.bad_lines > 0 || !words.source_trouble.empty();
  if (words == told_words_ || (!reporter_ && !is_worth_a_call)) return;
  has_told_ = true;
  if (!reporter_) reporter_ = connect_();
  reporter_->program(words);
  told_words_ = std::move(words);
}

}  // namespace agent::report
