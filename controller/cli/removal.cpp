#include "cli/removal.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <span>

#include "cli/command.h"
#include "cli/json_view.h"
#include "cli/terminal.h"
#include "cli/text.h"

namespace cli {
namespace {

using muster::v1::RemoveResponse;

constexpr std::size_t kJobsAtOnce = 100;
/// The limit of one call. The controller reads the size of every file of many jobs.
constexpr std::chrono::seconds kRemoveLimit{120};
/// If there are more jobs, one line sums them up.
constexpr int kMostLines = 50;

RemoveResponse ask_controller(Client& client, std::span<const std::int64_t> jobs, bool dry_run) {
  RemoveResponse all;
  while (!jobs.empty()) {
    const auto some = jobs.first(std::min(jobs.size(), kJobsAtOnce));
    jobs = jobs.subspan(some.size());
    muster::v1::RemoveRequest request;
    request.mutable_job_ids()->Assign(some.begin(), some.end());
    request.set_user(user_name());
    request.set_dry_run(dry_run);
    RemoveResponse answer;
    const auto status =
        client.try_call(client.jobs(), &muster::v1::JobService::Stub::Remove, request, &answer, kRemoveLimit);
    if (!status.ok()) throw client.failure(status);
    all.MergeFrom(answer);
  }
  return all;
}

std::int64_t freed_bytes(const RemoveResponse& answer) {
  std::int64_t bytes = 0;
  for (const auto& job : answer.removed()) bytes += job.bytes();
  return bytes;
}

std::string count_text(int jobs) {
  return std::to_string(jobs) + (jobs == 1 ? " job" : " jobs");
}

/// Asks the person. Returns false for no.
bool person_agrees(const RemoveResponse& plan) {
  std::cerr << "Remove " << count_text(plan.removed_size()) << " with metrics, logs and checkpoints ("
            << bytes_text(freed_bytes(plan)) << ")? This cannot be undone. [y/N] " << std::flush;
  std::string answer;
  if (!std::getline(std::cin, answer)) std::cerr << "\n";
  return answer == "y" || answer == "Y" || answer == "yes";
}

void tell_removed(const RemoveResponse& answer, const RemovalWishes& wishes) {
  const std::string verb = wishes.dry_run ? "would be removed" : "removed";
  if (answer.removed_size() <= kMostLines) {
    for (const auto& job : answer.removed()) {
      std::cout << "job " << job.job_id() << " " << verb << ": " << job.name() << ", " << job.state() << ", "
                << bytes_text(job.bytes());
      if (!job.kept_checkpoint_folder().empty()) std::cout << "; " << job.kept_checkpoint_folder() << " stays";
      std::cout << "\n";
    }
  }
  // If all jobs were refused, tell_refused() says it on stderr.
  const bool refused = answer.removed().empty() && !answer.refused().empty();
  if (answer.removed_size() != 1 && !refused) {
    std::cout << count_text(answer.removed_size()) << " " << verb << ", " << bytes_text(freed_bytes(answer)) << "\n";
  }
}

int tell_refused(const RemoveResponse& answer, const RemovalWishes& wishes) {
  if (answer.refused().empty()) return kSuccess;
  if (!wishes.named) {
    std::cerr << wishes.command << ": " << count_text(answer.refused_size())
              << " can't be removed now, such as: " << answer.refused(0).why() << "\n";
    return kSuccess;
  }
  for (const auto& refused : answer.refused()) std::cerr << wishes.command << ": " << refused.why() << "\n";
  return answer.refused(0).is_gone() ? kNotFound : kUsage;
}

void print_json_of(const RemoveResponse& answer, bool dry_run) {
  auto object = json_of(answer);
  object["bytes"] = freed_bytes(answer);
  object["dry_run"] = dry_run;
  print_json(object);
}

}  // namespace

int remove_jobs(Client& client, const std::vector<std::int64_t>& jobs, const RemovalWishes& wishes) {
  const bool asks = !wishes.yes && !wishes.dry_run && isatty(STDIN_FILENO) != 0 && stderr_is_terminal();
  if (asks) {
    const auto plan = ask_controller(client, jobs, true);
    if (!plan.removed().empty() && !person_agrees(plan)) {
      std::cerr << wishes.command << ": nothing was removed\n";
      return kInterrupted;
    }
  }
  const auto answer = ask_controller(client, jobs, wishes.dry_run);
  if (wishes.json) {
    print_json_of(answer, wishes.dry_run);
  } else {
    tell_removed(answer, wishes);
  }
  return tell_refused(answer, wishes);
}

std::vector<std::int64_t> jobs_to_prune(const std::vector<muster::v1::Job>& jobs, const PruneRule& rule,
                                        std::int64_t now_ms) {
  std::vector<std::int64_t> chosen;
  std::uint32_t kept = 0;
  for (const auto& job : jobs) {
    if (!rule.user.empty() && job.user() != rule.user) continue;
    if (rule.keep_last && kept < *rule.keep_last) {
      ++kept;
      continue;
    }
    const auto ended = time_ms(job.ended_at());
    if (rule.older_than && (ended < 0 || now_ms - ended < rule.older_than->count())) continue;
    chosen.push_back(job.id());
  }
  return chosen;
}

}  // namespace cli
