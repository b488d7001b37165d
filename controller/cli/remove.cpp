#include <chrono>

#include "cli/command.h"
#include "cli/job_pages.h"
#include "cli/removal.h"
#include "cli/usage.h"
#include "jobfile/toml_value.h"
#include "schema/units.h"

namespace cli {
namespace {

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
  if (!options.older_than.empty()) {
    const auto age = schema::parse_duration_ms(options.older_than);
    if (!age) {
      throw Failure(kUsage,
                    "--older-than \"" + jobfile::shown(options.older_than) + "\": want a duration such as 30d or 12h");
    }
    rule.older_than = std::chrono::milliseconds(*age);
  }
  return rule;
}

int run_prune(Session& session, const PruneOptions& options) {
  const auto rule = rule_of(options);
  auto& client = session.client();
  JobQuery query;
  query.states = options.states.empty() ? std::vector<std::string>{"succeeded", "failed", "cancelled"} : options.states;
  query.limit = UINT32_MAX;
  Listing listing;
  if (const auto status = read_jobs(client, query, &listing); !status.ok()) throw client.failure(status);
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

void define_rm(CLI::App& app, Session& session) {
  auto options = add_action<RmOptions>(app, session, run_rm);
  app.add_option("jobs", options->jobs, "The jobs' numbers, as muster list shows them")
      ->check(whole_number(1, INT64_MAX))
      ->type_name("JOB");
  app.add_option("--sweep", options->sweep, "Every job of this sweep that has ended")->type_name("SWEEP");
  add_wishes(app, options->wishes);
}

void define_prune(CLI::App& app, Session& session) {
  auto options = add_action<PruneOptions>(app, session, run_prune);
  app.add_option("--older-than", options->older_than, "Remove jobs that ended longer ago than this, such as 30d")
      ->type_name("TIME");
  app.add_option("--keep-last", options->keep_last, "Keep the newest N jobs, however old they are")
      ->check(whole_number(0, INT32_MAX))
      ->type_name("N");
  app.add_option("--state", options->states, "Only jobs in this state; may be repeated")
      ->check(CLI::IsMember({"succeeded", "failed", "cancelled"}))
      ->allow_extra_args(false);
  app.add_flag("--all-users", options->all_users, "Jobs of all users, not only your own");
  add_wishes(app, options->wishes);
}

}  // namespace cli
