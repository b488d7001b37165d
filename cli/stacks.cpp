#include <algorithm>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/cli_command.h"
#include "cli/cli_text.h"
#include "controller/common/clock.h"
#include "controller/core/core_text.h"

namespace cli {
namespace {

using muster::v1::StacksRequest;
using muster::v1::StacksView;

struct StacksOptions {
  std::int64_t job = 0;
  std::uint32_t attempt = 0;
  std::optional<std::uint32_t> rank;
  std::uint64_t set = 0;
  bool kept = false;
  bool json = false;
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
  std::vector<std::pair<std::string, std::vector<std::string>>> told;
  for (const auto& rank : view.ranks()) {
    if (rank.problem().empty() || (only && rank.rank() != *only)) continue;
    auto place = std::ranges::find(told, rank.problem(), [](const auto& each) { return each.first; });
    if (place == told.end()) place = told.insert(told.end(), {rank.problem(), {}});
    place->second.push_back(std::to_string(rank.rank()));
  }
  for (const auto& [problem, ranks] : told) {
    std::cerr << "muster stacks: " << (ranks.size() == 1 ? "rank " : "ranks ") << joined(ranks)
              << " gave none: " << problem << "\n";
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
