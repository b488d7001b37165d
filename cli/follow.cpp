#include "cli/follow.h"

#include <algorithm>
#include <condition_variable>
#include <iostream>
#include <thread>
#include <utility>

#include "cli/cli_command.h"
#include "cli/cli_text.h"
#include "cli/list.h"
#include "cli/metrics.h"
#include "controller/core/core_text.h"

namespace cli {
namespace {

constexpr std::chrono::seconds kLongestWatch{60};
constexpr std::chrono::seconds kProgressEvery{10};
constexpr std::chrono::seconds kWatchAgainAfter{1};
constexpr int kBarWidth = 24;

/// The job's reason, unless the line before it says the same: "attempt 2: running" tells nothing new about a running
/// job.
std::string news_of(const muster::v1::Job& job) {
  auto reason = job.reason();
  const auto lead = "attempt " + std::to_string(newest_attempt(job).number()) + ": ";
  if (reason.starts_with(lead)) reason.erase(0, lead.size());
  return reason.empty() || reason == status_of(job) ? "" : ": " + reason;
}

/// ", step 40/150, loss 2.585, validation loss 2.9"; ", step 40" where the program has not told how many there are.
std::string progress_text(const muster::v1::Job& job) {
  std::string text;
  if (job.steps_total() > 0 || job.has_step()) text += ", step " + std::to_string(job.step());
  if (job.steps_total() > 0) text += "/" + std::to_string(job.steps_total());
  if (job.has_loss()) text += ", loss " + number_text(job.loss());
  return text + held_out_text(job);
}

std::string line_of(const muster::v1::Job& job, const TimeLeft& left) {
  std::string text = "job " + std::to_string(job.id()) + " " + status_of(job);
  if (job.attempts_size() > 0) text += ", attempt " + std::to_string(newest_attempt(job).number());
  text += progress_text(job);
  if (job.has_tokens_per_s()) text += ", " + number_text(job.tokens_per_s()) + " tokens/s";
  if (!job.started_at().empty()) text += ", " + span_text(job.started_at(), job.ended_at()) + " gone";
  if (const auto time = left.left()) text += ", about " + duration_text(time->count()) + " left";
  return text;
}

/// The news that a job is suspected of something, or no longer is. Each is told once.
class SuspicionNews {
 public:
  /// A line without its end; empty: nothing new.
  std::string of(const muster::v1::Job& job) {
    const bool is_suspected = status_of(job).find(", suspected") != std::string::npos;
    const bool news = is_suspected != std::exchange(was_suspected_, is_suspected);
    if (!news || is_ended(job)) return "";
    return "muster: job " + std::to_string(job.id()) + " " + status_of(job) + news_of(job);
  }

 private:
  bool was_suspected_ = false;
};

/// The steps of a program that reports and prints nothing, a line every kProgressEvery at most, and what it is
/// suspected of. Runs beside the log of the program. Whoever reads the log tells of a lost connection.
class QuietProgress {
 public:
  QuietProgress(Client& client, std::int64_t job, SharedScreen& screen)
      : client_(client), job_(job), screen_(screen), thread_([this] { run(); }) {}
  ~QuietProgress() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
      if (call_ != nullptr) call_->TryCancel();
    }
    woken_.notify_all();
    thread_.join();
  }
  QuietProgress(const QuietProgress&) = delete;
  QuietProgress& operator=(const QuietProgress&) = delete;

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!stopped_) {
      grpc::ClientContext context;
      client_.authorize(context);
      context.set_deadline(std::chrono::system_clock::now() + kLongestWatch);
      call_ = &context;
      lock.unlock();
      const auto reader = client_.jobs().Watch(&context, of_job(job_));
      muster::v1::Job job;
      while (reader->Read(&job)) tell(job);
      reader->Finish();
      lock.lock();
      call_ = nullptr;
      woken_.wait_for(lock, kWatchAgainAfter, [this] { return stopped_; });
    }
  }
  void tell(const muster::v1::Job& job) {
    left_.see(job, std::chrono::steady_clock::now());
    if (const auto line = suspicions_.of(job); !line.empty()) screen_.print([&] { std::cerr << line << "\n"; });
    if (job.state() != "running" || !job.has_step() || job.step() == told_) return;
    const auto write = [&] { std::cerr << line_of(job, left_) << "\n"; };
    if (screen_.print_if_quiet(kProgressEvery, write)) told_ = job.step();
  }

  Client& client_;
  const std::int64_t job_;
  SharedScreen& screen_;
  SuspicionNews suspicions_;
  TimeLeft left_;
  std::int64_t told_ = -1;
  std::mutex mutex_;
  std::condition_variable woken_;
  bool stopped_ = false;
  grpc::ClientContext* call_ = nullptr;
  std::thread thread_;  // the last member, since it uses the others
};

/// The progress of a training; see follow().
class Progress {
 public:
  void show(const muster::v1::Job& job) {
    const auto state = status_of(job) + std::to_string(job.attempts_size()) + job.reason();
    const auto now = std::chrono::steady_clock::now();
    left_.see(job, now);
    const bool news = state != told_;
    if (!news && job.step() == told_step_) return;
    if (news) {
      close();
      std::cerr << line_of(job, left_) << news_of(job) << "\n";
    } else if (stderr_is_terminal() && job.steps_total() > 0) {
      std::cerr << "\r" << bar_line(job, left_, columns() - 1) << "\x1b[K" << std::flush;
      bar_open_ = true;
    } else if (now - told_at_ >= kProgressEvery ||
               job.step() - told_step_ >= std::max<std::int64_t>(1, job.steps_total() / 10)) {
      std::cerr << line_of(job, left_) << "\n";
    } else {
      return;
    }
    told_ = state;
    told_step_ = job.step();
    told_at_ = now;
  }

  /// Ends the line of the bar.
  void close() {
    if (bar_open_) std::cerr << "\n";
    bar_open_ = false;
  }

 private:
  TimeLeft left_;
  bool bar_open_ = false;
  std::string told_;  // the state that was printed last
  std::int64_t told_step_ = -1;
  std::chrono::steady_clock::time_point told_at_{};
};

struct WaitOptions {
  std::int64_t job = 0;
  std::string timeout;
  bool json = false;
};

int run_wait(Session& session, const WaitOptions& options) {
  std::optional<Contact::Clock::time_point> deadline;
  if (!options.timeout.empty()) {
    deadline = Contact::Clock::now() + duration_of("--timeout", options.timeout, "90s or 12h");
  }
  auto& client = session.client();
  muster::v1::Job job;
  const auto end = wait_for_end(client, options.job, &job, deadline);
  if (options.json && job.id() != 0) print_json(json_of(job));
  return tell_end(client, end, options.job, job);
}

}  // namespace

std::string bar_line(const muster::v1::Job& job, const TimeLeft& left, std::size_t width) {
  const auto filled = static_cast<std::size_t>(kBarWidth * std::min(job.step(), job.steps_total()) / job.steps_total());
  const std::string bar = "[" + std::string(filled, '#') + std::string(kBarWidth - filled, '.') + "] ";
  const std::string line = line_of(job, left);
  if (bar.size() + line.size() <= width) return bar + line;
  if (line.size() <= width) return line;
  std::string text = "step " + std::to_string(job.step()) + "/" + std::to_string(job.steps_total());
  if (job.has_loss()) text += ", loss " + number_text(job.loss());
  if (const auto time = left.left()) text += ", about " + duration_text(time->count()) + " left";
  if (bar.size() + text.size() <= width) text = bar + text;
  return cut(text, width);
}

void TimeLeft::see(const muster::v1::Job& job, Time now) {
  const auto attempt = newest_attempt(job).number();
  if (attempt != attempt_ || (!samples_.empty() && job.step() < samples_.back().step)) samples_.clear();
  attempt_ = attempt;
  total_ = job.steps_total();
  trains_ = job.state() == "running";
  step_ms_ = 0;
  for (const auto& rank : job.ranks()) step_ms_ = std::max(step_ms_, rank.step_ms());
  if (samples_.empty() || samples_.back().step != job.step()) samples_.push_back({now, job.step()});
  while (samples_.size() > 2 && (now - samples_.front().at > kWindow || samples_.size() > kMostSamples)) {
    samples_.pop_front();
  }
}

std::optional<std::chrono::milliseconds> TimeLeft::left() const {
  if (!trains_ || total_ <= 0 || samples_.empty() || samples_.back().step <= 0) return std::nullopt;
  const auto& first = samples_.front();
  const auto& last = samples_.back();
  const auto steps = static_cast<double>(last.step - first.step);
  const double seen_ms = std::chrono::duration<double, std::milli>(last.at - first.at).count();
  const double step_ms = steps > 0 && seen_ms > 0 ? seen_ms / steps : step_ms_;
  if (step_ms <= 0) return std::nullopt;
  const auto to_go = static_cast<double>(std::max<std::int64_t>(0, total_ - last.step));
  const std::chrono::milliseconds left(static_cast<std::int64_t>(to_go * step_ms));
  if (left < std::chrono::seconds(1)) return std::nullopt;
  return left;
}

std::function<void(const muster::v1::Job&)> tell_suspicions() {
  return [news = SuspicionNews()](const muster::v1::Job& job) mutable {
    if (const auto line = news.of(job); !line.empty()) std::cerr << line << "\n";
  };
}

bool is_ended(const muster::v1::Job& job) {
  return job.state() == "succeeded" || job.state() == "failed" || job.state() == "cancelled";
}

StreamEnd wait_for_end(Client& client, std::int64_t job, muster::v1::Job* last,
                       std::optional<Contact::Clock::time_point> deadline,
                       const std::function<void(const muster::v1::Job&)>& on_change) {
  const auto request = of_job(job);
  Contact contact(client, deadline);
  while (true) {
    const auto end = contact.follow<muster::v1::Job>(
        [&](grpc::ClientContext* context) { return client.jobs().Watch(context, request); },
        [&](const muster::v1::Job& now) {
          *last = now;
          on_change(now);
        },
        kLongestWatch);
    // The time may have been too short for one answer. Ask once more, since the job may have ended.
    if (end == StreamEnd::kTimedOut && last->id() == 0) {
      client.try_call([&](auto* context) { return client.jobs().Get(context, request, last); });
    }
    if (end == StreamEnd::kTimedOut && is_ended(*last)) return StreamEnd::kComplete;
    if (end != StreamEnd::kComplete || is_ended(*last)) return end;
    if (!contact.pause()) return contact.stopped();
  }
}

std::string outcome_text(const muster::v1::Job& job) {
  const auto status = status_of(job);
  if (job.reason().empty() || job.reason().starts_with(status)) return job.reason().empty() ? status : job.reason();
  return status + ": " + job.reason();
}

std::string summary_text(const muster::v1::Job& job) {
  auto text = core::count_text(static_cast<std::size_t>(job.attempts_size()), "attempt");
  text += progress_text(job);
  if (!job.started_at().empty()) text += ", took " + span_text(job.started_at(), job.ended_at());
  if (job.last_checkpoint_step() > 0) {
    const bool is_told = job.checkpoints_size() > 0 && job.checkpoints(0).step() == job.last_checkpoint_step();
    text += "; newest checkpoint of step " + std::to_string(job.last_checkpoint_step()) +
            (is_told ? ": " + job.checkpoints(0).path() : " in " + job.checkpoint_folder());
  }
  return text;
}

int tell_end(Client& client, StreamEnd end, std::int64_t id, const muster::v1::Job& job) {
  if (end != StreamEnd::kComplete) {
    std::cerr << "muster: job " << id << " goes on; watch it with muster logs " << id
              << " -f, cancel it with muster cancel " << id << "\n";
    return end == StreamEnd::kTimedOut ? kTimedOut : kInterrupted;
  }
  std::cerr << "muster: job " << id << " " << outcome_text(job) << "\n";
  if (job.attempts_size() > 0) std::cerr << "muster: " << summary_text(job) << "\n";
  if (job.state() == "succeeded") return kSuccess;
  if (job.state() == "failed") {
    std::cerr << "muster: look at muster show " << id << " and muster logs " << id;
    const auto words = slurm_words(client, job);
    if (const auto log = slurm_log_place(job); !log.empty())
      std::cerr << "; the output of Slurm and of the lines before the ranks: " << log
                << (words.empty() ? "" : ", which ends with");
    std::cerr << "\n";
    for (const auto& line : words) std::cerr << "  | " << line << "\n";
  }
  return kJobFailed;
}

int follow(Client& client, const muster::v1::JobSpec& spec, std::int64_t id) {
  Interrupts::instance().gently();
  auto end = StreamEnd::kComplete;
  if (spec.has_command()) {
    SharedScreen screen;
    const QuietProgress progress(client, id, screen);
    end = print_logs(client, {.job = id, .follow = true}, std::cerr, &screen);
  }
  muster::v1::Job job;
  Progress progress;
  if (end == StreamEnd::kComplete) {
    end = wait_for_end(client, id, &job, std::nullopt, [&](const muster::v1::Job& now) {
      if (spec.has_recipe() && !is_ended(now)) progress.show(now);
    });
  }
  progress.close();
  return tell_end(client, end, id, job);
}

void define_wait(CLI::App& app, Session& session) {
  auto options = add_action<WaitOptions>(app, session, run_wait);
  add_job(app, options->job);
  app.add_option("--timeout", options->timeout, "Give up after this time, such as 90s or 12h, with exit code 124")
      ->type_name("TIME");
  app.add_flag("--json", options->json, "The job at the end");
}

}  // namespace cli
