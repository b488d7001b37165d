#include <algorithm>
#include <chrono>
#include <iostream>
#include <set>

#include "cli/command.h"
#include "cli/job_pages.h"
#include "core/text.h"
#include "schema/recipes.h"

namespace cli {
namespace {

using muster::v1::Job;
using Clock = std::chrono::steady_clock;

/// The longest wait. A shell is blocked while a person types.
constexpr std::chrono::seconds kWordsWithin{1};
constexpr std::uint32_t kWordsPage = 1000;
constexpr int kMostPages = 20;
constexpr std::size_t kMostWords = 1000;
constexpr std::uint32_t kSeriesOf = 5;

struct WordsOptions {
  std::string what;
  std::string command;
};

/// Calls the controller. Throws a Failure after an error, and when kWordsWithin is over.
class Asker {
 public:
  explicit Asker(Session& session) : client_(session.client_unconnected()) {}

  muster::v1::ListResponse list(const muster::v1::ListRequest& request) { return ask(&JobStub::List, request); }
  Job get(std::int64_t id) { return ask(&JobStub::Get, of_job(id)); }

 private:
  template <typename Request, typename Response>
  Response ask(grpc::Status (JobStub::*method)(grpc::ClientContext*, const Request&, Response*),
               const Request& request) {
    const auto left = std::chrono::ceil<std::chrono::seconds>(until_ - Clock::now());
    if (left.count() <= 0) throw Failure(kUnreachable, "the time is over");
    return client_.call(method, request, left);
  }

  Client& client_;
  Clock::time_point until_ = Clock::now() + kWordsWithin;
};

/// Prints jobs of which the command may be asked. The controller looks for them, so old jobs are found too.
void print_jobs(Asker& asker, const std::string& command) {
  muster::v1::ListRequest request;
  // A job that may be cancelled has not ended, so a person may wait for it.
  request.set_may(command == "wait" ? "cancel" : command);
  request.set_limit(kWordsPage);
  std::size_t words = 0;
  for (int page = 0; page < kMostPages && words < kMostWords; ++page) {
    const auto answer = asker.list(request);
    for (const auto& job : answer.jobs()) {
      std::cout << job.id() << "\t" << job.name() << ", " << status_of(job) << "\n";
      if (++words == kMostWords) return;
    }
    if (answer.jobs_size() < static_cast<int>(kWordsPage)) return;
    request.set_before_id(answer.jobs().rbegin()->id());
  }
}

/// The sweep's name: "gate" if its job is "gate-0007".
std::string name_of_sweep(const Job& job) {
  const auto number = job.name().rfind('-');
  return number == std::string::npos ? job.name() : job.name().substr(0, number);
}

/// Prints sweeps. The jobs of a sweep have consecutive ids, so the next page begins before the first job of the last
/// sweep.
void print_sweeps(Asker& asker) {
  std::set<std::string> sweeps;
  muster::v1::ListRequest request;
  request.set_limit(kWordsPage);
  for (int page = 0; page < kMostPages; ++page) {
    const auto answer = asker.list(request);
    for (const auto& job : answer.jobs()) {
      const auto& sweep = job.sweep().sweep();
      if (sweep.empty() || !sweeps.insert(sweep).second) continue;
      muster::v1::ListRequest of_sweep;
      of_sweep.set_sweep(sweep);
      of_sweep.set_limit(1);
      const auto jobs = static_cast<std::size_t>(asker.list(of_sweep).total());
      std::cout << sweep << "\t" << name_of_sweep(job) << ", " << core::count_text(jobs, "job") << "\n";
    }
    if (answer.jobs_size() < static_cast<int>(kWordsPage)) return;
    const auto& last = *answer.jobs().rbegin();
    const auto first = last.id() - static_cast<std::int64_t>(last.sweep().index());
    request.set_before_id(std::max<std::int64_t>(first, 1));
  }
}

/// Prints the series of recipes, then the series of the newest jobs that have run.
void print_series(Asker& asker) {
  std::set<std::string, std::less<>> names;
  const auto print = [&](const std::string& name, const std::string& unit) {
    if (names.insert(name).second) std::cout << name << (unit.empty() ? "" : "\t" + unit) << "\n";
  };
  for (const auto& recipe : schema::recipes()) {
    for (const auto& series : recipe.series) print(series.name, series.unit);
  }
  muster::v1::ListRequest request;
  request.set_limit(kSeriesOf);
  const auto newest = asker.list(request);
  for (const auto& row : newest.jobs()) {
    if (row.attempts_size() == 0) continue;
    const auto job = asker.get(row.id());
    for (const auto& series : job.series()) print(series.name(), series.unit());
  }
}

int run_words(Session& session, const WordsOptions& options) {
  Asker asker(session);
  try {
    if (options.what == "jobs") print_jobs(asker, options.command);
    if (options.what == "series") print_series(asker);
    if (options.what == "sweeps") print_sweeps(asker);
  } catch (const Failure&) {
    // The words that were found so far are printed.
  }
  return kSuccess;
}

}  // namespace

void define_completion_words(CLI::App& app, Session& session) {
  auto options = add_action<WordsOptions>(app, session, run_words);
  app.add_option("what", options->what)->required()->check(CLI::IsMember({"jobs", "sweeps", "series"}));
  app.add_option("command", options->command);
}

}  // namespace cli
