#include <iostream>
#include <sstream>

#include "cli/command.h"
#include "cli/contact.h"
#include "cli/json_view.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "cli/usage.h"

namespace cli {
namespace {

constexpr std::uint32_t kPage = 1000;
constexpr std::chrono::milliseconds kRefresh{1000};

struct ListOptions {
  bool watch = false;
  bool json = false;
  std::vector<std::string> states;
  std::uint32_t limit = 100;
};

struct Listing {
  std::vector<muster::v1::Job> jobs;
  std::int64_t total = 0;
};

/// Newest first, page by page. A failed page gives its status.
grpc::Status read_jobs(Client& client, const ListOptions& options, Listing* listing) {
  muster::v1::ListRequest request;
  for (const auto& state : options.states) request.add_states(state);
  while (listing->jobs.size() < options.limit) {
    request.set_limit(std::min<std::uint32_t>(kPage, options.limit - static_cast<std::uint32_t>(listing->jobs.size())));
    muster::v1::ListResponse response;
    const auto status = client.try_call(client.jobs(), &muster::v1::JobService::Stub::List, request, &response);
    if (!status.ok()) return status;
    if (request.before_id() == 0) listing->total = response.total();
    for (auto& job : *response.mutable_jobs()) listing->jobs.push_back(std::move(job));
    if (static_cast<std::uint32_t>(response.jobs_size()) < request.limit()) break;
    request.set_before_id(listing->jobs.back().id());
  }
  return grpc::Status::OK;
}

std::string step_text(const muster::v1::Job& job) {
  if (job.steps_total() > 0) return std::to_string(job.step()) + "/" + std::to_string(job.steps_total());
  return job.step() > 0 ? std::to_string(job.step()) : "-";
}

std::string table_of(const Listing& listing) {
  if (listing.jobs.empty()) return "";
  Table table({{"ID", true},
               {"NAME", false, 10},
               {"STATE", false, 0, true},
               {"ATT", true},
               {"STEP", true},
               {"LOSS", true},
               {"TOK/S", true},
               {"AGE", true},
               {"REASON", false, 8}});
  for (const auto& job : listing.jobs) {
    table.add({std::to_string(job.id()), job.name(), job.state(),
               job.attempts_size() > 0 ? std::to_string(job.attempts().rbegin()->number()) : "-", step_text(job),
               job.has_loss() ? number_text(job.loss()) : "-",
               job.has_tokens_per_s() ? number_text(job.tokens_per_s()) : "-", span_text(job.submitted_at(), ""),
               job.reason()});
  }
  return table.text();
}

std::string note_of(const Listing& listing) {
  if (listing.jobs.empty()) return "muster: no jobs; submit one with muster submit JOB.toml\n";
  const auto shown = static_cast<std::int64_t>(listing.jobs.size());
  if (listing.total <= shown) return "";
  return "muster: the newest " + std::to_string(shown) + " of " + std::to_string(listing.total) +
         " jobs; --limit shows more\n";
}

nlohmann::ordered_json json_rows(const Listing& listing) {
  auto rows = nlohmann::ordered_json::array();
  for (const auto& job : listing.jobs) rows.push_back(json_of(job));
  return rows;
}

void print(const Listing& listing, const ListOptions& options) {
  if (options.json) {
    JsonRows rows(false);
    for (const auto& job : listing.jobs) rows.add(json_of(job));
    rows.end();
  } else {
    std::cout << table_of(listing) << std::flush;
    std::cerr << note_of(listing);
  }
}

/// On a terminal the table stays in its place; elsewhere it is printed again when it has changed.
void print_again(const Listing& listing, const ListOptions& options, std::string* shown) {
  const auto now = options.json ? json_rows(listing).dump() + "\n" : table_of(listing);
  if (!options.json && stdout_is_terminal()) {
    std::cout << "\x1b[H\x1b[J" << (now.empty() ? "no jobs\n" : now) << std::flush;
  } else if (now != *shown) {
    std::cout << (shown->empty() || options.json ? "" : "\n") << now << std::flush;
  }
  *shown = now;
}

int watch(Client& client, const ListOptions& options) {
  Contact contact(client);
  for (std::string shown; !Interrupts::instance().requested();) {
    Listing listing;
    const auto status = read_jobs(client, options, &listing);
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
  Listing listing;
  if (const auto status = read_jobs(client, options, &listing); !status.ok()) throw client.failure(status);
  print(listing, options);
  return kSuccess;
}

}  // namespace

void define_list(CLI::App& app, Session& session) {
  auto options = add_action<ListOptions>(app, session, run_list);
  app.add_flag("-w,--watch", options->watch, "Keep showing it, until Ctrl-C");
  app.add_option("--state", options->states, "Only jobs in this state; may be repeated")
      ->check(CLI::IsMember({"pending", "running", "stopping", "waiting", "succeeded", "failed", "cancelled"}))
      ->allow_extra_args(false);
  app.add_option("--limit", options->limit, "At most so many, the newest")
      ->check(whole_number(1, 100'000))
      ->type_name("N")
      ->capture_default_str();
  app.add_flag("--json", options->json, "An array of jobs; with -w one such array a line");
}

}  // namespace cli
