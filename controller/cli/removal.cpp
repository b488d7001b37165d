#include "cli/removal.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <span>

#include "cli/command.h"
#include "cli/job_pages.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "core/text.h"

namespace cli {
namespace {

using muster::v1::RemoveResponse;

/// How `muster rm` and `muster prune` remove the jobs that they have chosen.
struct RemovalWishes {
  std::string command;  // "muster rm"; messages begin with it
  bool yes = false;     // do not ask for confirmation
  bool dry_run = false;
  bool json = false;
  /// True: a person named the jobs, so each job that cannot be removed is an error. False: such jobs are only counted.
  bool named = false;
};

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
    all.MergeFrom(client.call(&JobStub::Remove, request, kRemoveLimit));
  }
  return all;
}

std::int64_t freed_bytes(const RemoveResponse& answer) {
  std::int64_t bytes = 0;
  for (const auto& job : answer.removed()) bytes += job.bytes();
  return bytes;
}

std::string count_text(int jobs) {
  return core::count_text(static_cast<std::size_t>(jobs), "job");
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

/// Removes the jobs, and prints what was removed and how much space that frees. On a terminal asks for confirmation
/// first. Returns the exit code.
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

struct RmOptions {
  std::vector<std::int64_t> jobs;
  std::string sweep;
  RemovalWishes wishes;
};

struct PruneOptions {
  std::string older_than;
  std::optional<std::uint32_t> keep_last;
  std::vector<std::string> states;
  bool all_users = false;
  RemovalWishes wishes;
};

int run_rm(Session& session, const RmOptions& options) {
  if (options.jobs.empty() == options.sweep.empty()) {
    throw Failure(kUsage, options.jobs.empty() ? "want JOB..., or --sweep" : "want JOB... or --sweep, not both");
  }
  auto& client = session.client();
  auto wishes = options.wishes;
  wishes.named = options.sweep.empty();
  if (wishes.named) return remove_jobs(client, options.jobs, wishes);
  std::vector<std::int64_t> ids;
  for (const auto& job : jobs_of_sweep(client, options.sweep)) ids.push_back(job.id());
  return remove_jobs(client, ids, wishes);
}

PruneRule rule_of(const PruneOptions& options) {
  if (options.older_than.empty() && !options.keep_last) {
    throw Failure(kUsage, "want --older-than or --keep-last: without them every job that has ended would be removed");
  }
  PruneRule rule;
  rule.keep_last = options.keep_last;
  if (!options.all_users) rule.user = user_name();
  if (!options.older_than.empty()) rule.older_than = duration_of("--older-than", options.older_than, "30d or 12h");
  return rule;
}

int run_prune(Session& session, const PruneOptions& options) {
  const auto rule = rule_of(options);
  auto& client = session.client();
  JobQuery query;
  query.states = options.states.empty() ? std::vector<std::string>{"succeeded", "failed", "cancelled"} : options.states;
  query.limit = UINT32_MAX;
  const auto listing = list_jobs(client, query);
  const auto now =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch());
  return remove_jobs(client, jobs_to_prune(listing.jobs, rule, now.count()), options.wishes);
}

void add_wishes(CLI::App& app, RemovalWishes& wishes) {
  wishes.command = "muster " + app.get_name();
  app.add_flag("-y,--yes", wishes.yes, "Do not ask for confirmation");
  app.add_flag("--dry-run", wishes.dry_run, "Only show what would be removed, and how much space that frees");
  app.add_flag("--json", wishes.json, "An object {removed, refused, bytes, dry_run}");
}

}  // namespace

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

void define_rm(CLI::App& app, Session& session) {
  auto options = add_action<RmOptions>(app, session, run_rm);
  add_jobs(app, options->jobs);
  app.add_option("--sweep", options->sweep, "Every job of this sweep that has ended")->type_name("SWEEP");
  add_wishes(app, options->wishes);
}

void define_prune(CLI::App& app, Session& session) {
  auto options = add_action<PruneOptions>(app, session, run_prune);
  app.add_option("--older-than", options->older_than, "Remove jobs that ended longer ago than this, such as 30d")
      ->type_name("TIME");
  add_number(app, "--keep-last", options->keep_last, 0, INT32_MAX, "Keep the newest N jobs, however old they are");
  app.add_option("--state", options->states, "Only jobs in this state; may be repeated")
      ->check(CLI::IsMember({"succeeded", "failed", "cancelled"}))
      ->allow_extra_args(false);
  app.add_flag("--all-users", options->all_users, "Jobs of all users, not only your own");
  add_wishes(app, options->wishes);
}

}  // namespace cli
