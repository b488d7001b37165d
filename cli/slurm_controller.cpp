#include "cli/slurm_controller.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <set>
#include <utility>
#include <variant>

#include "base/durable_file.h"
#include "cli/cli_command.h"
#include "cli/own_musterd.h"
#include "controller/common/data_folder.h"
#include "controller/core/core_text.h"
#include "slurm/pending_reason.h"

namespace cli {
namespace {

using in_slurm::Standing;
using Steady = std::chrono::steady_clock;

/// A person waits so long for a job that waits. muster status tells later.
constexpr std::chrono::seconds kQueuedFor{60};
/// From the start of the job. A store that was not closed in order is read whole.
constexpr std::chrono::seconds kReadyInJobWithin{120};
/// musterd bounds its end by 20 s, and Slurm kills after its KillWait.
constexpr std::chrono::seconds kJobsEndWithin{180};
constexpr std::chrono::milliseconds kBetweenListings{500};

std::string job_text(const slurm::ListedJob& job) {
  return "Slurm job " + to_string(job.id);
}

std::string waiting_text(const slurm::ListedJob& job) {
  const auto why = slurm::explain_waiting(job);
  std::string text = job_text(job) + " waits: " + why.sentence;
  if (!why.action.empty()) text += " " + why.action;
  return text;
}

/// The newest job that runs or waits.
std::string looked_at_by(const Standing& standing) {
  const auto& job = standing.running ? *standing.running : standing.queued.front();
  return "muster status and squeue -j " + to_string(job.id) + " tell more, muster down ends it";
}

Failure not_submitted(const slurm::SubmitAnswer& answer) {
  if (const auto* no = std::get_if<slurm::Refused>(&answer)) return {kRefused, "Slurm refuses the job: " + no->why};
  if (const auto* none = std::get_if<slurm::Unreachable>(&answer)) {
    return {kUnreachable, "Slurm does not answer: " + none->why};
  }
  return {kUnreachable, "Slurm has not said that it took the job: " + std::get<slurm::Unsure>(answer).why};
}

}  // namespace

SlurmController::SlurmController(std::filesystem::path data_folder)
    : data_folder_(std::move(data_folder)), slurm_(runner_, {}) {}

bool SlurmController::is_wanted() const {
  std::error_code none;
  return std::filesystem::exists(in_slurm::script_file(data_folder_), none);
}

Standing SlurmController::look() {
  const auto jobs = slurm_.list(user_name());
  if (!jobs) throw Failure(kUnreachable, "Slurm does not answer: " + jobs.why());
  return in_slurm::standing_of(*jobs, in_slurm::comment_of(data_folder_));
}

void SlurmController::start(const std::vector<std::string>& command, slurm::Options asked) {
  std::optional<std::chrono::seconds> limit;
  if (const auto given = asked.find("time"); given != asked.end()) {
    limit = std::chrono::ceil<std::chrono::seconds>(duration_of("--time", given->second.value_or(""), "12h"));
    given->second = std::to_string(std::max(1L, std::chrono::ceil<std::chrono::minutes>(*limit).count()));
  } else {
    const auto partitions = slurm_.partitions();
    if (!partitions) throw Failure(kUnreachable, "Slurm does not answer: " + partitions.why());
    if (const auto minutes = in_slurm::time_to_ask(*partitions, asked)) {
      limit = *minutes;
      asked["time"] = std::to_string(minutes->count());
    }
  }
  const auto script = in_slurm::script_of(data_folder_, command, log_of(data_folder_), asked, limit);
  if (const auto wrong = slurm::problems(script); !wrong.empty()) throw Failure(kUsage, wrong.front());
  const auto text = slurm::render(script);
  common::make_data_folder(data_folder_);
  base::write_file_durably(in_slurm::script_file(data_folder_), text);
  if (look().is_any_left()) return;
  const auto answer = slurm_.submit(text, {}, {}, in_slurm::environment_of_job());
  if (std::holds_alternative<slurm::JobId>(answer)) return;
  // Slurm may have taken it all the same.
  if (std::holds_alternative<slurm::Unsure>(answer) && look().is_any_left()) return;
  forget();
  throw not_submitted(answer);
}

common::ReadyFile SlurmController::wait_for_ready() {
  const auto from = size_of_log(data_folder_);
  const auto begin = Steady::now();
  std::optional<Steady::time_point> started;
  std::string told;
  std::optional<slurm::JobId> first;  // of the jobs that this call has seen
  while (true) {
    const auto ready = common::read_ready_file(data_folder_);
    const auto standing = look();
    const auto now = Steady::now();
    if (const auto& job = standing.running; job) {
      if (ready && ready->slurm_job == to_string(job->id)) return *ready;
      if (!started) started = now;
      if (now - *started > kReadyInJobWithin) {
        throw Failure(kUnreachable, "musterd is not ready in " + job_text(*job) + " after " +
                                        std::to_string(kReadyInJobWithin.count()) + " s; its log is " +
                                        log_of(data_folder_).native() + "; " + looked_at_by(standing));
      }
    } else if (standing.queued.empty() || (first && standing.ended && standing.ended->id >= *first)) {
      const auto words = words_since(log_of(data_folder_), from);
      const auto goes_on =
          standing.is_any_left() ? "; the next job tries again: " + looked_at_by(standing) : std::string();
      if (!standing.is_any_left()) forget();
      throw Failure(kUnreachable, "musterd did not start in Slurm: " + (words.empty() ? "it has said nothing" : words) +
                                      " (its log is " + log_of(data_folder_).native() + ")" + goes_on);
    } else {
      const auto waits = waiting_text(standing.queued.front());
      if (now - begin > kQueuedFor) throw Failure(kTimedOut, waits + " musterd starts then: " + looked_at_by(standing));
      if (told != waits) std::cerr << "muster: " << waits << "\n";
      told = waits;
    }
    if (!first) first = standing.running ? standing.running->id : standing.queued.front().id;
    Interrupts::instance().sleep(kBetweenListings);
  }
}

void SlurmController::stop() {
  auto standing = look();
  forget();  // first: nobody submits another one from here on
  std::set<slurm::JobId> cancelled;
  for (const auto end = Steady::now() + kJobsEndWithin; standing.is_any_left(); standing = look()) {
    std::vector<slurm::JobId> left;
    for (const auto& job : standing.queued) left.push_back(job.id);
    if (standing.running) left.push_back(standing.running->id);
    std::erase_if(left, [&](const auto& id) { return !cancelled.insert(id).second; });
    if (const auto done = slurm_.cancel(left); !done) {
      throw Failure(kUnreachable, "scancel: " + done.why() + "; say muster down again");
    }
    if (Steady::now() >= end) {
      throw Failure(kUnreachable, job_text(standing.running ? *standing.running : standing.queued.front()) +
                                      " has not ended within " + std::to_string(kJobsEndWithin.count()) +
                                      " s: say muster down again, and see squeue");
    }
    Interrupts::instance().sleep(kBetweenListings);
  }
  // A musterd that Slurm had to kill leaves its file, which other hosts would believe.
  if (const auto ready = common::read_ready_file(data_folder_); ready && !ready->slurm_job.empty()) {
    std::filesystem::remove(ready->file);
  }
}

void SlurmController::forget() const {
  std::filesystem::remove(in_slurm::script_file(data_folder_));
}

std::string SlurmController::text_of(const Standing& standing) {
  if (!standing.is_any_left()) {
    return "no job of it is left" +
           (standing.ended ? " (job " + to_string(standing.ended->id) + ": " + standing.ended->state.text + ")" : "") +
           ": muster up --in-slurm submits one";
  }
  if (!standing.running) return waiting_text(standing.queued.front());
  const auto& job = *standing.running;
  return "job " + to_string(job.id) + (job.node_list.empty() ? "" : " on " + job.node_list) +
         (job.ends ? " until " + core::utc_text(*job.ends) : "") +
         (standing.queued.empty() ? "; no job goes on after it yet"
                                  : "; then job " + to_string(standing.queued.front().id) + " goes on");
}

}  // namespace cli
