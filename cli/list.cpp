#include "cli/list.h"

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "cli/cli_command.h"
#include "cli/cli_text.h"
#include "spec/jobfile/job_keys.h"
#include "spec/jobfile/sweep.h"

namespace cli {
namespace {

using muster::v1::Job;

constexpr std::uint32_t kPage = 1000;
/// Ranks make an answer long.
constexpr std::uint32_t kPageWithRanks = 20;
constexpr std::chrono::milliseconds kRefresh{1000};
constexpr const char* kHeld = "held";
constexpr const char* kHoldable[]{"pending", "queued", "running", "stopping", "waiting"};

bool asks_for(const JobQuery& query, const std::string& state) {
  return std::ranges::find(query.states, state) != query.states.end();
}

grpc::Status read_pages(Client& client, const JobQuery& query, Listing* listing) {
  muster::v1::ListRequest request;
  for (const auto& state : query.states) request.add_states(state);
  request.set_sweep(query.sweep);
  request.mutable_job_ids()->Assign(query.ids.begin(), query.ids.end());
  request.set_with_ranks(query.with_ranks);
  request.set_with_series(query.with_series);
  const auto page = query.with_ranks ? kPageWithRanks : kPage;
  while (listing->jobs.size() < query.limit) {
    request.set_limit(std::min<std::uint32_t>(page, query.limit - static_cast<std::uint32_t>(listing->jobs.size())));
    muster::v1::ListResponse response;
    const auto status = client.try_call([&](auto* context) { return client.jobs().List(context, request, &response); });
    if (!status.ok()) return status;
    if (request.before_id() == 0) listing->total = response.total();
    for (auto& job : *response.mutable_jobs()) listing->jobs.push_back(std::move(job));
    if (static_cast<std::uint32_t>(response.jobs_size()) < request.limit()) break;
    request.set_before_id(listing->jobs.back().id());
  }
  return grpc::Status::OK;
}

/// The Failure for a sweep that has no job.
Failure no_such_sweep(const std::string& sweep) {
  return {kNotFound, "there is no sweep " + sweep + "; muster list shows the sweeps"};
}

std::string bytes_or_dash(std::int64_t bytes) {
  return bytes > 0 ? bytes_text(bytes) : "-";
}

std::string fixed_text(double value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

struct ListOptions {
  bool watch = false, json = false;
  JobQuery query;
  CLI::Option* limit = nullptr;
};

std::string step_text(const Job& job) {
  if (job.steps_total() > 0) return std::to_string(job.step()) + "/" + std::to_string(job.steps_total());
  return job.step() > 0 ? std::to_string(job.step()) : "-";
}

/// A column that few jobs have a value for is shown if a job of the list has one.
std::string table_of(const Listing& listing, const JobQuery& query) {
  const auto in_slurm = [](const Job& job) { return !newest_attempt(job).scheduler_job().empty(); };
  const auto in_sweep = [](const Job& job) { return !job.sweep().sweep().empty(); };
  const bool of_sweep = !query.sweep.empty();
  Table table;
  const auto add = [&](Table::Column column, auto text_of) { table.add(std::move(column), listing.jobs, text_of); };
  add({"ID", true}, [](const Job& job) { return std::to_string(job.id()); });
  add({"NAME", false, 10}, &Job::name);
  add({"STATE", false, 0, true}, status_of);
  if (std::ranges::any_of(listing.jobs, in_slurm)) {
    add({"SLURM", true}, [](const Job& job) { return or_dash(newest_attempt(job).scheduler_job()); });
  }
  if (of_sweep) add({"SETTINGS", false, 36}, [](const Job& job) { return settings_text(job.sweep()); });
  add({"ATT", true},
      [](const Job& job) { return job.attempts_size() > 0 ? std::to_string(newest_attempt(job).number()) : "-"; });
  add({"STEP", true}, step_text);
  add({"LOSS", true}, [](const Job& job) { return job.has_loss() ? number_text(job.loss()) : "-"; });
  add({"TOK/S", true}, [](const Job& job) { return job.has_tokens_per_s() ? number_text(job.tokens_per_s()) : "-"; });
  add({"AGE", true}, [](const Job& job) { return span_text(job.submitted_at(), ""); });
  if (!of_sweep && std::ranges::any_of(listing.jobs, in_sweep)) {
    add({"SWEEP"}, [](const Job& job) { return or_dash(job.sweep().sweep()); });
  }
  if (std::ranges::any_of(listing.jobs, [](const Job& job) { return !job.program_status().empty(); })) {
    add({"STATUS", false, 8}, [](const Job& job) { return or_dash(job.program_status()); });
  }
  add({"REASON", false, 8}, &Job::reason);
  return table.text();
}

std::string scheduler_note(const Listing& listing) {
  for (const auto& job : listing.jobs) {
    if (!job.scheduler_problem().empty()) {
      return "muster: " + job.scheduler_problem() + "; the states of queued jobs may be out of date\n";
    }
  }
  return "";
}

/// The line below the table. It mentions `query.limit` only if the limit is the default.
std::string note_of(const Listing& listing, const JobQuery& query, bool limit_asked) {
  if (!query.ids.empty()) return "";
  if (listing.jobs.empty()) {
    return query.states.empty() ? "muster: no jobs; submit one with muster submit JOB.toml\n"
                                : "muster: no job matches\n";
  }
  const auto shown = static_cast<std::int64_t>(listing.jobs.size());
  if (listing.total <= shown || limit_asked) return "";
  return "muster: the newest " + std::to_string(shown) + " of " + std::to_string(listing.total) +
         " jobs; --limit shows more\n";
}

void print(const Listing& listing, const ListOptions& options) {
  if (options.json) return print_json_array(listing.jobs);
  std::cout << table_of(listing, options.query) << std::flush;
  std::cerr << scheduler_note(listing) << note_of(listing, options.query, options.limit->count() > 0);
}

/// The header and as many of the newest rows as fit on the screen. The last line says how many rows are left out.
std::string screen_of(Listing listing, const JobQuery& query) {
  if (listing.jobs.empty()) return "no jobs\n";
  constexpr std::size_t kBesideRows = 2;  // the header and the cursor's line
  const auto room = screen_lines() - kBesideRows;
  if (listing.jobs.size() <= room) return table_of(listing, query);
  listing.jobs.resize(room - 1);
  const auto shown = std::to_string(listing.jobs.size());
  return table_of(listing, query) +
         cut("the newest " + shown + " of " + std::to_string(listing.total) +
                 " jobs; a taller window shows more, --state selects",
             table_columns()) +
         "\n";
}

/// Shows the table again. On a terminal it replaces the old one. Elsewhere it is printed if it has changed.
void print_again(const Listing& listing, const ListOptions& options, std::string* shown) {
  const bool on_screen = !options.json && stdout_is_terminal();
  auto rows = nlohmann::ordered_json::array();
  if (options.json) std::ranges::transform(listing.jobs, std::back_inserter(rows), json_of);
  const auto now = options.json ? rows.dump() + "\n"
                   : on_screen  ? screen_of(listing, options.query)
                                : table_of(listing, options.query);
  if (on_screen) {
    std::cout << "\x1b[H\x1b[J" << now << std::flush;
  } else if (now != *shown) {
    std::cout << (shown->empty() || options.json ? "" : "\n") << now << std::flush;
  }
  *shown = now;
}

int watch(Client& client, const ListOptions& options) {
  Contact contact(client);
  for (std::string shown; !Interrupts::instance().requested();) {
    Listing listing;
    const auto status = read_jobs(client, options.query, &listing);
    if (!status.ok()) {
      if (!contact.settle(status)) break;
      continue;
    }
    contact.regained();
    print_again(listing, options, &shown);
    if (!Interrupts::instance().sleep(kRefresh)) break;
  }
  return kInterrupted;
}

int run_list(Session& session, const ListOptions& options) {
  auto& client = session.client();
  if (options.watch) return watch(client, options);
  const auto listing = list_jobs(client, options.query);
  if (listing.jobs.empty() && options.query.states.empty() && !options.query.sweep.empty()) {
    throw no_such_sweep(options.query.sweep);
  }
  print(listing, options);
  return tell_missing("list", listing, options.query);
}

}  // namespace

grpc::Status read_jobs(Client& client, const JobQuery& query, Listing* listing) {
  if (!asks_for(query, kHeld)) return read_pages(client, query, listing);
  JobQuery wider = query;
  std::erase(wider.states, kHeld);
  for (const char* state : kHoldable) {
    if (!asks_for(query, state)) wider.states.emplace_back(state);
  }
  wider.limit = UINT32_MAX;
  Listing all;
  if (const auto status = read_pages(client, wider, &all); !status.ok()) return status;
  for (auto& job : all.jobs) {
    if (job.held_by().empty() && !asks_for(query, job.state())) continue;
    ++listing->total;
    if (listing->jobs.size() < query.limit) listing->jobs.push_back(std::move(job));
  }
  return grpc::Status::OK;
}

int tell_missing(const std::string& command, const Listing& listing, const JobQuery& query) {
  int exit = kSuccess;
  for (const auto id : query.ids) {
    if (std::ranges::any_of(listing.jobs, [&](const auto& job) { return job.id() == id; })) continue;
    std::cerr << "muster " << command << ": there is no job " << id
              << (query.states.empty() && query.sweep.empty() ? "" : " that matches the filters") << "\n";
    exit = kNotFound;
  }
  return exit;
}

Listing list_jobs(Client& client, const JobQuery& query) {
  Listing listing;
  if (const auto status = read_jobs(client, query, &listing); !status.ok()) throw client.failure(status);
  return listing;
}

std::vector<Job> jobs_of_sweep(Client& client, const std::string& sweep) {
  auto listing = list_jobs(client, {.sweep = sweep, .limit = jobfile::kMostSweepJobs, .with_series = true});
  if (listing.jobs.empty()) throw no_such_sweep(sweep);
  std::ranges::sort(listing.jobs, [](const auto& a, const auto& b) { return a.id() < b.id(); });
  return std::move(listing.jobs);
}

std::vector<std::int64_t> jobs_to_prune(const std::vector<Job>& jobs, const PruneRule& rule, std::int64_t now_ms) {
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

std::string status_of(const Job& job) {
  return job.status().empty() ? job.state() : job.status();
}

const muster::v1::Attempt& newest_attempt(const Job& job) {
  return job.attempts().empty() ? muster::v1::Attempt::default_instance() : *job.attempts().rbegin();
}

std::string short_name(const std::string& key, const std::vector<std::string>& keys) {
  const auto leaf = jobfile::leaf_of(key);
  return jobfile::keys_ending_in(leaf, keys).size() == 1 ? leaf : key;
}

std::string settings_text(const muster::v1::SweepElement& element) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : element.settings()) keys.push_back(key);
  std::ranges::sort(keys);
  std::string text;
  for (const auto& key : keys) append(text, short_name(key, keys) + "=" + element.settings().at(key), " ");
  return text;
}

std::string cores_text(const muster::v1::Rank& rank) {
  if (!rank.use().has_cores()) return "-";
  const auto cores = rank.use().cores();
  return fixed_text(cores, cores < 10 ? 2 : 1);
}

std::string memory_text(const muster::v1::Rank& rank) {
  return bytes_or_dash(rank.use().has_memory_bytes() ? rank.use().memory_bytes() : rank.memory_bytes());
}

std::string memory_peak_text(const muster::v1::Rank& rank) {
  return bytes_or_dash(std::max(rank.use().memory_peak_bytes(), rank.memory_peak_bytes()));
}

std::string gpu_text(const muster::v1::Rank& rank) {
  return rank.use().has_gpu_percent() ? fixed_text(rank.use().gpu_percent(), 0) : "-";
}

std::string gpu_memory_text(const muster::v1::Rank& rank) {
  return rank.use().has_gpu_memory_bytes() ? bytes_text(rank.use().gpu_memory_bytes()) : "-";
}

std::string gpus_text(const muster::v1::Rank& rank) {
  return or_dash(rank.gpus());
}

bool has_gpu(const muster::v1::Rank& rank) {
  return rank.use().has_gpu_percent() || rank.use().has_gpu_memory_bytes();
}

void define_list(CLI::App& app, Session& session) {
  auto options = add_action<ListOptions>(app, session, run_list);
  add_jobs(app, options->query.ids)->expected(0, kMostNamedJobs)->description("Only these jobs, by their numbers");
  app.add_flag("-w,--watch", options->watch, "Keep showing the list until Ctrl-C");
  app.add_option("--state", options->query.states, "Only jobs in this state; may be repeated")
      ->check(CLI::IsMember(
          {"pending", "queued", "running", "stopping", "waiting", "held", "succeeded", "failed", "cancelled"}))
      ->allow_extra_args(false);
  app.add_option("--sweep", options->query.sweep, "Only jobs of this sweep, with their settings")->type_name("SWEEP");
  options->limit = add_number(app, "--limit", options->query.limit, 1, 100'000, "At most N jobs, the newest");
  options->limit->capture_default_str();
  app.add_flag("--json", options->json, "An array of jobs; with -w one such array a line");
}

}  // namespace cli
