#include <algorithm>
#include <iostream>
#include <set>

#include "cli/command.h"
#include "cli/follow.h"

namespace cli {
namespace {

using muster::v1::Job;

/// A shell waits for this while a person types.
constexpr std::chrono::seconds kAnswerWithin{1};
constexpr std::uint32_t kMostJobs = 200;

struct WordsOptions {
  std::string what;
  std::string command;
};

/// Whether the command can do anything with a job in that state; of a command that this does not name, with any.
bool fits(const std::string& command, const Job& job) {
  const bool ended = is_ended(job);
  if (command == "cancel" || command == "hold" || command == "limit" || command == "wait") return !ended;
  if (command == "release") return !job.held_by().empty();
  if (command == "requeue") return job.state() == "failed" || job.state() == "running" || job.state() == "waiting";
  return command != "rm" || ended;
}

/// The newest jobs; none if the controller does not answer soon.
std::vector<Job> newest_jobs(Session& session) {
  muster::v1::ListRequest request;
  request.set_limit(kMostJobs);
  muster::v1::ListResponse response;
  auto& client = session.client_unconnected();
  const auto status =
      client.try_call(client.jobs(), &muster::v1::JobService::Stub::List, request, &response, kAnswerWithin);
  if (!status.ok()) return {};
  return {response.jobs().begin(), response.jobs().end()};
}

int run_words(Session& session, const WordsOptions& options) {
  std::set<std::string> sweeps;
  for (const auto& job : newest_jobs(session)) {
    if (options.what == "jobs") {
      if (fits(options.command, job)) std::cout << job.id() << "\t" << job.name() << ", " << job.state() << "\n";
    } else if (const auto& sweep = job.sweep().sweep(); !sweep.empty() && sweeps.insert(sweep).second) {
      std::cout << sweep << "\t" << job.name() << "\n";
    }
  }
  return kSuccess;
}

}  // namespace

void define_completion_words(CLI::App& app, Session& session) {
  auto options = add_action<WordsOptions>(app, session, run_words);
  app.add_option("what", options->what)->required()->check(CLI::IsMember({"jobs", "sweeps"}));
  app.add_option("command", options->command);
}

}  // namespace cli
