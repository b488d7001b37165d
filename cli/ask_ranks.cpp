// Commands that ask the ranks of a job that runs: trace, stacks.
#include <algorithm>
#include <iostream>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/protocol/files.h"
#include "cli/cli_command.h"
#include "cli/cli_text.h"
#include "controller/common/clock.h"
#include "controller/core/core_text.h"

namespace cli {
namespace {

using NumbersByProblem = std::vector<std::pair<std::string, std::vector<std::string>>>;

/// The problems that ranks have told, and the ranks that say the same. `only`: of this rank alone.
template <typename Ranks>
NumbersByProblem ranks_by_problem(const Ranks& ranks, const std::optional<std::uint32_t>& only = {}) {
  NumbersByProblem told;
  for (const auto& rank : ranks) {
    if (rank.problem().empty() || (only && rank.rank() != *only)) continue;
    auto place = std::ranges::find(told, rank.problem(), &NumbersByProblem::value_type::first);
    if (place == told.end()) place = told.insert(told.end(), {rank.problem(), {}});
    place->second.push_back(std::to_string(rank.rank()));
  }
  return told;
}

/// "ranks 1, 3"
std::string named(const std::vector<std::string>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + joined(ranks);
}

using muster::v1::TraceRequest;
using muster::v1::TraceView;

/// A stream is opened again after this time, so that a connection that died silently is noticed.
constexpr std::chrono::seconds kLongestStream{60};

struct TraceOptions {
  std::int64_t job = 0;
  std::uint32_t steps = 1;
  std::int64_t at = 0;
  bool no_wait = false;
  std::string timeout;
  bool json = false;
};

/// A number that no other request has.
std::uint64_t random_number() {
  std::random_device device;
  return std::uniform_int_distribution<std::uint64_t>(1, agent::protocol::kMostTraceNumber)(device);
}

/// "job 7: its 2 ranks"
std::string its_ranks(const TraceView& view) {
  const auto ranks = static_cast<std::size_t>(view.ranks_size());
  return "job " + std::to_string(view.job_id()) + ": its " + core::count_text(ranks, "rank");
}

std::vector<std::string> files_of(const TraceView& view) {
  std::vector<std::string> files;
  for (const auto& rank : view.ranks()) {
    for (const auto step : rank.steps_written()) {
      files.push_back(view.folder() + "/" + agent::protocol::trace_file_name(step, rank.rank()));
    }
  }
  return files;
}

/// The problems of a trace, one text for each problem. Ranks that say the same share a text.
std::vector<std::string> problems_of(const TraceView& view) {
  std::vector<std::string> problems;
  if (!view.problem().empty()) problems.push_back("job " + std::to_string(view.job_id()) + ": " + view.problem());
  for (const auto& [problem, ranks] : ranks_by_problem(view.ranks())) {
    const bool all = ranks.size() > 1 && ranks.size() == static_cast<std::size_t>(view.ranks_size());
    const auto who = all ? std::string("all ranks") : named(ranks);
    problems.push_back("job " + std::to_string(view.job_id()) + ", " + who + ": " + problem);
  }
  return problems;
}

/// "job 7: its 2 ranks record step 41"
std::string stage_text(const TraceView& view) {
  const auto what = view.first_step() > 0 ? agent::protocol::traced_steps_text(view.first_step(), view.steps())
                                          : core::count_text(view.steps(), "step");
  return its_ranks(view) + (view.state() == "asked" ? " are asked to record " : " record ") + what;
}

/// Tells what the ranks do next, once for each state.
class TraceStages {
 public:
  void show(const TraceView& view) {
    if (view.state() == state_ || view.state() == "over") return;
    state_ = view.state();
    std::cerr << "muster: " << stage_text(view) << "\n";
  }

 private:
  std::string state_;
};

void print_view(const TraceView& view) {
  auto object = json_of(view);
  object["files"] = files_of(view);
  print_json(object);
}

int tell_trace(const TraceView& view, bool json) {
  const auto files = files_of(view);
  const auto problems = problems_of(view);
  if (json) {
    print_view(view);
  } else {
    for (const auto& file : files) std::cout << file << "\n";
    std::cout << std::flush;
    if (!files.empty()) std::cerr << "muster: open them in https://ui.perfetto.dev or chrome://tracing\n";
  }
  for (const auto& problem : problems) std::cerr << "muster trace: " << problem << "\n";
  return problems.empty() ? kSuccess : kJobFailed;
}

/// For a request whose end nobody waits for.
void tell_place(const TraceView& view, const std::string& lead) {
  std::cerr << "muster: " << lead << "; the files will be " << view.folder() << "/step-N.rankR.json\n";
}

using OpenTrace = Contact::Open<TraceView>;

/// Waits until the trace is over. `view` is its newest view.
StreamEnd follow_trace(Client& client, const OpenTrace& open, std::optional<Contact::Clock::time_point> deadline,
                       TraceView& view) {
  TraceStages stages;
  const auto take = [&](const TraceView& now) {
    view = now;
    stages.show(view);
  };
  try {
    return Contact(client, deadline).follow<TraceView>(open, take, kLongestStream);
  } catch (const Failure& failure) {
    // The job has ended while the controller was away.
    if (view.job_id() == 0) throw;
    throw Failure(failure.exit(), std::string(failure.what()) + "; what was recorded is in " + view.folder());
  }
}

int run_trace(Session& session, const TraceOptions& options) {
  std::optional<Contact::Clock::time_point> deadline;
  if (!options.timeout.empty()) {
    deadline = Contact::Clock::now() + duration_of("--timeout", options.timeout, "90s or 10m");
  }
  TraceRequest request;
  request.set_job_id(options.job);
  request.set_user(user_name());
  request.set_number(random_number());
  request.set_steps(options.steps);
  request.set_first_step(options.at);
  request.set_follow(!options.no_wait);
  auto& client = session.client();
  const OpenTrace open = [&](grpc::ClientContext* context) { return client.jobs().Trace(context, request); };
  TraceView view;
  if (options.no_wait) {
    Contact::read<TraceView>(client, false, open, [&](const TraceView& now) { view = now; });
    if (options.json) print_view(view);
    tell_place(view, stage_text(view));
    return kSuccess;
  }
  const auto end = follow_trace(client, open, deadline, view);
  if (end == StreamEnd::kComplete) return tell_trace(view, options.json);
  if (view.job_id() != 0) {
    if (options.json) print_view(view);
    tell_place(view, "job " + std::to_string(view.job_id()) + ": its ranks record all the same");
  }
  return end == StreamEnd::kTimedOut ? kTimedOut : kInterrupted;
}

using muster::v1::StacksRequest;
using muster::v1::StacksView;

struct StacksOptions {
  std::int64_t job = 0;
  std::uint32_t attempt = 0;
  std::optional<std::uint32_t> rank;
  std::uint64_t set = 0;
  bool kept = false, json = false;
};

bool runs(const muster::v1::Job& job, std::uint32_t attempt) {
  if (job.attempts_size() == 0) return false;
  const auto& newest = *job.attempts().rbegin();
  const auto& state = newest.state();
  return (attempt == 0 || attempt == newest.number()) &&
         (state == "running" || state == "starting" || state == "draining");
}

std::string moment_of(const muster::v1::StackSet& set) {
  return utc_text(common::time_text(core::Time(core::Millis(set.at_ms()))));
}

std::string why_of(const muster::v1::StackSet& set) {
  if (set.why() == "suspected") return "when it was suspected";
  if (set.why() == "before_end") return "when it was about to end";
  return set.user().empty() ? "when they were asked for" : "when " + harmless(set.user()) + " asked for them";
}

/// The answer of the stream as one view.
StacksView read_stacks(Session& session, const StacksOptions& options) {
  auto& client = session.client();
  StacksRequest request;
  request.set_job_id(options.job);
  request.set_user(user_name());
  request.set_attempt(options.attempt);
  request.set_number(options.set);
  const bool looks_back = options.kept || options.set != 0;
  if (!looks_back) request.set_ask(runs(client.call(&JobStub::Get, of_job(options.job)), options.attempt));
  if (request.ask()) std::cerr << "muster: job " << options.job << ": its ranks are asked for their stacks\n";
  std::optional<StacksView> view;
  const Contact::Open<StacksView> open = [&](grpc::ClientContext* context) {
    return client.jobs().Stacks(context, request);
  };
  Contact::read<StacksView>(client, false, open, [&](const StacksView& part) {
    if (!view) {
      view = part;
    } else {
      view->mutable_ranks()->MergeFrom(part.ranks());
    }
  });
  return view.value_or(StacksView());
}

/// The other sets that are kept, so that people find them.
void tell_sets(const StacksView& view) {
  for (const auto& set : view.sets()) {
    if (set.number() == view.shown().number()) continue;
    std::cerr << "muster: others are kept of " << moment_of(set) << ", " << why_of(set) << ": muster stacks "
              << view.job_id() << " --attempt " << view.attempt() << " --set " << set.number() << "\n";
  }
}

void print_rank(const muster::v1::RankStack& rank) {
  std::cout << painted("--- rank " + std::to_string(rank.rank()) + " ---", Colour::kBlue) << "\n";
  TerminalText terminal;
  std::string_view text = rank.text();
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    std::cout << terminal.pass(text.substr(0, end)) << "\n";
    terminal.end_line();
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

void print_stacks(const StacksView& view, const std::optional<std::uint32_t>& only) {
  const auto& shown = view.shown();
  std::cerr << "muster: job " << view.job_id() << " attempt " << view.attempt() << ": stacks of " << shown.given()
            << " of " << core::count_text(shown.ranks(), "rank") << ", taken at " << moment_of(shown) << ", "
            << why_of(shown) << "\n";
  for (const auto& rank : view.ranks()) {
    if (!rank.text().empty() && (!only || rank.rank() == *only)) print_rank(rank);
  }
  std::cout << std::flush;
  if (!view.summary().empty()) std::cerr << "muster: " << harmless(view.summary()) << "\n";
}

/// Why ranks gave none. Ranks of the same reason share a line.
void tell_problems(const StacksView& view, const std::optional<std::uint32_t>& only) {
  for (const auto& [problem, ranks] : ranks_by_problem(view.ranks(), only)) {
    std::cerr << "muster stacks: " << named(ranks) << " gave none: " << problem << "\n";
  }
}

int run_stacks(Session& session, const StacksOptions& options) {
  const auto view = read_stacks(session, options);
  if (options.rank && view.has_shown() && *options.rank >= view.shown().ranks()) {
    throw Failure(kNotFound, "job " + std::to_string(options.job) + " has no rank " + std::to_string(*options.rank) +
                                 "; it has " + core::count_text(view.shown().ranks(), "rank"));
  }
  if (options.json) {
    print_json(json_of(view));
    return view.has_shown() ? kSuccess : kJobFailed;
  }
  if (!view.has_shown()) {
    const auto of = "attempt " + std::to_string(view.attempt()) + " of job " + std::to_string(options.job);
    std::cerr
        << "muster stacks: no " << (options.set != 0 ? "such stacks" : "stacks") << " are kept of " << of
        << "; they are taken while it runs: when it is suspected, before it ends by a hang, and when they are asked "
           "for\n";
    tell_sets(view);
    return kJobFailed;
  }
  print_stacks(view, options.rank);
  tell_problems(view, options.rank);
  tell_sets(view);
  return view.shown().given() > 0 ? kSuccess : kJobFailed;
}

}  // namespace

void define_trace(CLI::App& app, Session& session) {
  auto options = add_action<TraceOptions>(app, session, run_trace);
  add_job(app, options->job);
  add_number(app, "--steps", options->steps, 1, agent::protocol::kMostTraceSteps,
             "How many steps, one after the other");
  add_number(app, "--at", options->at, 1, INT64_MAX,
             "The first step; without it the next one that all ranks can record");
  app.add_flag("--no-wait", options->no_wait, "Only ask; do not wait for the files");
  app.add_option("--timeout", options->timeout, "Wait no longer than this, such as 90s or 10m, with exit code 124")
      ->type_name("TIME");
  app.add_flag("--json", options->json, "How the trace stands at the end, with the paths as \"files\"");
}

void define_stacks(CLI::App& app, Session& session) {
  auto options = add_action<StacksOptions>(app, session, run_stacks);
  add_job(app, options->job);
  add_number(app, "--attempt", options->attempt, 1, UINT32_MAX, "Of this attempt (default: the newest)");
  app.add_option("--rank", options->rank, "Of this rank alone")->check(whole_number(0, UINT32_MAX))->type_name("N");
  app.add_flag("--kept", options->kept, "Ask nobody; show the newest that are kept");
  add_number(app, "--set", options->set, 1, INT64_MAX, "Those that were kept under this number");
  app.add_flag("--json", options->json, "All of it as one object");
}

}  // namespace cli
