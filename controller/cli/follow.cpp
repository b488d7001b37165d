#include "cli/follow.h"

#include <algorithm>
#include <iostream>

#include "cli/job_pages.h"
#include "cli/series_text.h"
#include "cli/slurm_words.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "core/text.h"

namespace cli {
namespace {

constexpr std::chrono::seconds kLongestWatch{60};
constexpr std::chrono::milliseconds kConnectPause{250};
constexpr std::chrono::seconds kProgressEvery{10};
constexpr int kBarWidth = 24;

std::string name_of(std::int64_t id) {
  return "job " + std::to_string(id);
}

/// The job's reason, unless the line before it says the same: "attempt 2: running" tells nothing new about a running
/// job.
std::string news_of(const muster::v1::Job& job) {
  auto reason = job.reason();
  if (job.attempts_size() > 0) {
    const auto lead = "attempt " + std::to_string(job.attempts().rbegin()->number()) + ": ";
    if (reason.starts_with(lead)) reason.erase(0, lead.size());
  }
  return reason.empty() || reason == status_of(job) ? "" : ": " + reason;
}

/// ", step 40/150, loss 2.585, validation loss 2.9"
std::string progress_text(const muster::v1::Job& job) {
  std::string text;
  if (job.steps_total() > 0) text += ", step " + std::to_string(job.step()) + "/" + std::to_string(job.steps_total());
  if (job.has_loss()) text += ", loss " + number_text(job.loss());
  return text + held_out_text(job);
}

}  // namespace

bool is_ended(const muster::v1::Job& job) {
  return job.state() == "succeeded" || job.state() == "failed" || job.state() == "cancelled";
}

void connect_patiently(Client& client, std::chrono::seconds limit) {
  const auto deadline = Contact::Clock::now() + limit;
  for (bool told = false; !client.connect();) {
    if (Contact::Clock::now() >= deadline) throw client.unreachable();
    if (!told) {
      if (client.is_wrong_port()) throw client.unreachable();
      std::cerr << "muster: controller unreachable at " << client.address() << ", trying for " << limit.count()
                << " s; start it with musterd, or set --address\n";
    }
    told = true;
    Interrupts::instance().sleep(kConnectPause);
  }
  client.must_connect();
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
      client.try_call(&JobStub::Get, request, last);
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
    text +=
        "; newest checkpoint of step " + std::to_string(job.last_checkpoint_step()) + " in " + job.checkpoint_folder();
  }
  return text;
}

int tell_end(Client& client, StreamEnd end, std::int64_t id, const muster::v1::Job& job) {
  const auto number = std::to_string(id);
  if (end != StreamEnd::kComplete) {
    std::cerr << "muster: " << name_of(id) << " goes on; watch it with muster logs " << number
              << " -f, cancel it with muster cancel " << number << "\n";
    return end == StreamEnd::kTimedOut ? kTimedOut : kInterrupted;
  }
  std::cerr << "muster: " << name_of(id) << " " << outcome_text(job) << "\n";
  if (job.attempts_size() > 0) std::cerr << "muster: " << summary_text(job) << "\n";
  if (job.state() == "succeeded") return kSuccess;
  if (job.state() == "failed") {
    std::cerr << "muster: look at muster show " << number << " and muster logs " << number;
    const auto words = slurm_words(client, job);
    if (const auto log = slurm_log_place(job); !log.empty())
      std::cerr << "; the output of Slurm and of the lines before the ranks: " << log
                << (words.empty() ? "" : ", which ends with");
    std::cerr << "\n";
    for (const auto& line : words) std::cerr << "  | " << line << "\n";
  }
  return kJobFailed;
}

void Progress::line(const muster::v1::Job& job) {
  std::cerr << name_of(job.id()) << " " << status_of(job);
  if (job.attempts_size() > 0) std::cerr << ", attempt " << job.attempts().rbegin()->number();
  std::cerr << progress_text(job);
  if (job.has_tokens_per_s()) std::cerr << ", " << number_text(job.tokens_per_s()) << " tokens/s";
  if (!job.started_at().empty()) std::cerr << ", " << span_text(job.started_at(), job.ended_at()) << " gone";
  if (const auto left = left_.left()) std::cerr << ", about " << duration_text(left->count()) << " left";
}

void Progress::show(const muster::v1::Job& job) {
  const auto state = status_of(job) + std::to_string(job.attempts_size()) + job.reason();
  const auto now = std::chrono::steady_clock::now();
  left_.see(job, now);
  const bool news = state != told_;
  if (!news && job.step() == told_step_) return;
  if (news) {
    close();
    line(job);
    std::cerr << news_of(job) << "\n";
  } else if (stderr_is_terminal() && job.steps_total() > 0) {
    const auto filled =
        static_cast<std::size_t>(kBarWidth * std::min(job.step(), job.steps_total()) / job.steps_total());
    std::cerr << "\r[" << std::string(filled, '#') << std::string(kBarWidth - filled, '.') << "] ";
    line(job);
    std::cerr << "\x1b[K" << std::flush;
    bar_open_ = true;
  } else if (now - told_at_ >= kProgressEvery ||
             job.step() - told_step_ >= std::max<std::int64_t>(1, job.steps_total() / 10)) {
    line(job);
    std::cerr << "\n";
  } else {
    return;
  }
  told_ = state;
  told_step_ = job.step();
  told_at_ = now;
}

void Progress::close() {
  if (bar_open_) std::cerr << "\n";
  bar_open_ = false;
}

}  // namespace cli
