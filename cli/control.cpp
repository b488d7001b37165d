#include <algorithm>
#include <chrono>
#include <iostream>
#include <span>
#include <thread>

#include "cli/cli_command.h"
#include "cli/cli_text.h"
#include "cli/follow.h"
#include "cli/list.h"
#include "controller/core/core_text.h"
#include "spec/jobfile/job_keys.h"

namespace cli {
namespace {

using muster::v1::Job;
using muster::v1::RemoveResponse;

/// A transaction may change ten thousand jobs.
constexpr std::chrono::seconds kChangeLimit{60};
/// A call of scontrol may take 15 s.
constexpr std::chrono::seconds kAnswerWithin{20};
constexpr std::chrono::milliseconds kInterval{50};
constexpr std::size_t kJobsAtOnce = 100;
/// The limit of one call of muster rm. The controller reads the size of every file of many jobs.
constexpr std::chrono::seconds kRemoveLimit{120};
/// If there are more jobs, one line sums them up.
constexpr int kMostLines = 50;

/// The jobs that a command names, or the sweep whose jobs it changes.
struct ChosenJobs {
  std::vector<std::int64_t> jobs;
  std::string sweep;
};

void add_chosen(CLI::App& app, ChosenJobs& chosen, const std::string& sweep_meaning) {
  add_jobs(app, chosen.jobs);
  app.add_option("--sweep", chosen.sweep, sweep_meaning)->type_name("SWEEP");
}

void must_choose(const ChosenJobs& chosen) {
  if (chosen.jobs.empty() != chosen.sweep.empty()) return;
  throw Failure(kUsage, chosen.jobs.empty() ? "want JOB..., or --sweep" : "want JOB... or --sweep, not both");
}

template <typename Request, auto method>
Job change_job(Client& client, std::int64_t id) {
  Request request;
  request.set_job_id(id);
  request.set_user(user_name());
  return client.call(method, request);
}

/// The change that a command makes to jobs.
struct Change {
  muster::v1::SweepChange of_sweep;
  Job (*of_job)(Client& client, std::int64_t id);
};

struct ChangeOptions {
  std::string command;
  Change change;
  ChosenJobs chosen;
  bool json = false;
};

void tell(const Job& job) {
  std::cout << "job " << job.id() << " " << outcome_text(job) << "\n";
}

/// Changes all jobs of the sweep that allow it, in one call. The others are counted.
int change_sweep(Session& session, const ChangeOptions& options) {
  muster::v1::ChangeSweepRequest request;
  request.set_sweep(options.chosen.sweep);
  request.set_user(user_name());
  request.set_change(options.change.of_sweep);
  const auto response = session.client().call(&JobStub::ChangeSweep, request, kChangeLimit);
  if (options.json) {
    print_json_array(response.jobs());
  } else {
    for (const auto& job : response.jobs()) tell(job);
  }
  if (response.refused() > 0) {
    std::cerr << "muster: " << response.jobs_size() << " of "
              << static_cast<std::size_t>(response.jobs_size()) + response.refused()
              << " jobs; the states of the others do not allow it, such as: " << response.refusal() << "\n";
  }
  return kSuccess;
}

int run_change(Session& session, const ChangeOptions& options) {
  must_choose(options.chosen);
  if (!options.chosen.sweep.empty()) return change_sweep(session, options);
  auto& client = session.client();
  const auto ask = [&](std::int64_t id) { return options.change.of_job(client, id); };
  return ask_each(options.command, options.chosen.jobs, options.json, ask, tell);
}

void define_change(CLI::App& app, Session& session, const Change& change) {
  auto options = add_action<ChangeOptions>(app, session, run_change);
  options->command = app.get_name();
  options->change = change;
  add_chosen(app, options->chosen, "All jobs of this sweep whose state allows it");
  app.add_flag("--json", options->json,
               "The changed job; for several jobs or a sweep, an array (for a sweep with state and reason only)");
}

struct LimitOptions {
  std::int64_t job = 0;
  std::string time;
  bool json = false;
};

std::int64_t limit_of(const std::string& text) {
  if (text == "none") return 0;
  const auto& field = *jobfile::find_key("resources.time_limit");
  const auto value = spec::parse(field, text);
  if (!value || !spec::allowed(field, *value)) {
    throw Failure(kUsage, "time limit \"" + text + "\": want " + spec::wanted(field) + ", or none");
  }
  return std::get<std::int64_t>(*value);
}

std::string limit_text(std::int64_t limit_ms) {
  if (limit_ms == 0) return "no time limit";
  return "time limit " + spec::print(*jobfile::find_key("resources.time_limit"), limit_ms);
}

/// Waits for the scheduler's answer, at most kAnswerWithin. Returns the newest job.
Job until_answered(Client& client, Job job) {
  const auto end = std::chrono::steady_clock::now() + kAnswerWithin;
  while (job.has_time_limit_asked_ms() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kInterval);
    job = client.call(&JobStub::Get, of_job(job.id()));
  }
  return job;
}

int run_limit(Session& session, const LimitOptions& options) {
  muster::v1::SetTimeLimitRequest request;
  request.set_job_id(options.job);
  request.set_user(user_name());
  request.set_time_limit_ms(limit_of(options.time));
  auto& client = session.client();
  const auto job = until_answered(client, client.call(&JobStub::SetTimeLimit, request));
  if (options.json) {
    print_json(json_of(job));
    return job.time_limit_problem().empty() ? kSuccess : kRefused;
  }
  const auto name = "job " + std::to_string(job.id()) + ": ";
  if (!job.time_limit_problem().empty()) {
    throw Failure(kRefused, name + job.time_limit_problem() +
                                "; Slurm lets only its operators give a running job more time: ask one, or set the "
                                "limit while no attempt runs");
  }
  std::cout << name << limit_text(job.time_limit_ms());
  if (job.has_time_limit_asked_ms()) {
    std::cout << "; " << limit_text(job.time_limit_asked_ms()) << " was asked for; Slurm has not answered yet";
  }
  std::cout << "\n";
  return kSuccess;
}

/// How `muster rm` and `muster prune` remove the jobs that they have chosen.
struct RemovalWishes {
  std::string command;  // "muster rm"; messages begin with it
  bool yes = false;     // do not ask for confirmation
  bool dry_run = false;
  bool json = false;
  /// True: a person named the jobs, so each job that cannot be removed is an error. False: such jobs are only counted.
  bool named = false;
};

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
  return person_says_yes("Remove " + count_text(plan.removed_size()) + " with metrics, logs and checkpoints (" +
                         bytes_text(freed_bytes(plan)) + ")? This cannot be undone.");
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
  const bool asks = !wishes.yes && !wishes.dry_run && can_ask();
  if (asks) {
    const auto plan = ask_controller(client, jobs, true);
    if (!plan.removed().empty() && !person_agrees(plan)) {
      std::cerr << wishes.command << ": nothing was removed\n";
      return kInterrupted;
    }
  }
  const auto answer = ask_controller(client, jobs, wishes.dry_run);
  wishes.json ? print_json_of(answer, wishes.dry_run) : tell_removed(answer, wishes);
  return tell_refused(answer, wishes);
}

struct RmOptions {
  ChosenJobs chosen;
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
  must_choose(options.chosen);
  auto& client = session.client();
  auto wishes = options.wishes;
  wishes.named = options.chosen.sweep.empty();
  auto ids = options.chosen.jobs;
  if (!wishes.named) {
    std::ranges::transform(jobs_of_sweep(client, options.chosen.sweep), std::back_inserter(ids), &Job::id);
  }
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
  const std::vector<std::string> ended{"succeeded", "failed", "cancelled"};
  const auto listing = list_jobs(client, {options.states.empty() ? ended : options.states, "", UINT32_MAX});
  return remove_jobs(client, jobs_to_prune(listing.jobs, rule, now_ms()), options.wishes);
}

void add_wishes(CLI::App& app, RemovalWishes& wishes) {
  wishes.command = "muster " + app.get_name();
  app.add_flag("-y,--yes", wishes.yes, "Do not ask for confirmation");
  app.add_flag("--dry-run", wishes.dry_run, "Only show what would be removed, and how much space that frees");
  app.add_flag("--json", wishes.json, "An object {removed, refused, bytes, dry_run}");
}

}  // namespace

void define_cancel(CLI::App& app, Session& session) {
  define_change(app, session,
                {muster::v1::SWEEP_CHANGE_CANCEL, change_job<muster::v1::CancelRequest, &JobStub::Cancel>});
}

void define_requeue(CLI::App& app, Session& session) {
  define_change(app, session,
                {muster::v1::SWEEP_CHANGE_REQUEUE, change_job<muster::v1::RequeueRequest, &JobStub::Requeue>});
}

void define_hold(CLI::App& app, Session& session) {
  define_change(app, session, {muster::v1::SWEEP_CHANGE_HOLD, change_job<muster::v1::HoldRequest, &JobStub::Hold>});
}

void define_release(CLI::App& app, Session& session) {
  define_change(app, session,
                {muster::v1::SWEEP_CHANGE_RELEASE, change_job<muster::v1::HoldRequest, &JobStub::Release>});
}

void define_limit(CLI::App& app, Session& session) {
  auto options = add_action<LimitOptions>(app, session, run_limit);
  add_job(app, options->job);
  app.add_option("time", options->time, "How long each attempt may run, such as 4h or 1h30m; or none")
      ->required()
      ->type_name("TIME");
  app.add_flag("--json", options->json, "The changed job");
}

void define_rm(CLI::App& app, Session& session) {
  auto options = add_action<RmOptions>(app, session, run_rm);
  add_chosen(app, options->chosen, "Every job of this sweep that has ended");
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
