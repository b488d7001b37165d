#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include "cli/cli_command.h"
#include "cli/cli_text.h"
#include "cli/list.h"
#include "cli/metrics.h"
#include "spec/jobfile/job_keys.h"
#include "spec/series.h"

namespace cli {
namespace {

using spec::Better;

constexpr std::uint32_t kNewestLookedAt = 10'000;

struct ResultsOptions {
  std::string sweep;
  std::string metric;  // empty: decide() chooses
  std::string best;
  std::uint32_t top = 0;
  bool csv = false, json = false;
};

struct Result {
  muster::v1::Job job;
  std::optional<Curve::Point> last = {}, best = {};  // of the series that the table shows
  std::optional<Curve::Point> ranked = {};           // the value by which jobs are compared
};

/// The series by which jobs are compared, and the direction.
struct Ranking {
  std::string series;
  Better better = Better::kLower;

  /// True: compare the best values. Every value of a validation series is measured on the same data, so the best one is
  /// fair. A training loss is measured on one batch and throughput at one moment, so their best values are luck.
  bool by_best() const { return spec::is_held_out(series); }
  std::string text() const {
    if (by_best()) return std::string(better == Better::kHigher ? "highest " : "lowest ") + series;
    return "mean " + series + " of the last " + std::to_string(Curve::kSmoothedSteps) + " steps";
  }
};

/// The series that the jobs of a sweep have reported.
class Reported {
 public:
  void add(const muster::v1::Job& job) {
    for (const auto& series : job.series()) {
      const bool is_new = better_.try_emplace(series.name(), spec::better_of(series.better())).second;
      if (is_new) names_.push_back(series.name());
    }
  }
  const std::vector<std::string>& names() const { return names_; }
  bool has(const std::string& name) const { return better_.contains(name); }
  /// kNeither if no job has reported the series.
  Better better(const std::string& name) const { return has(name) ? better_.at(name) : Better::kNeither; }

 private:
  std::vector<std::string> names_;  // in the order in which they appeared
  std::map<std::string, Better> better_;
};

/// How well a series describes a training; 0: it is compared only if a person asks for it.
int weight_of(const std::string& name, Better better) {
  const bool is_loss = spec::quantity_of(name) == "loss";
  if (spec::is_held_out(name) && better != Better::kNeither) return is_loss ? 4 : 3;
  if (is_loss) return 2;
  return better != Better::kNeither ? 1 : 0;
}

/// Chooses the series: the one that was asked for, else the one with the most weight. That is the validation loss, once
/// a job has one.
Ranking decide(const ResultsOptions& options, const Reported& reported) {
  Ranking ranking{options.metric, Better::kNeither};
  const bool any = !reported.names().empty();
  if (options.metric.empty()) {
    const auto weight = [&](const std::string& name) { return weight_of(name, reported.better(name)); };
    ranking.series = any ? *std::ranges::max_element(reported.names(), {}, weight) : "loss";
    if (any && weight(ranking.series) == 0) {
      throw Failure(kUsage,
                    "it is not known for any series whether low or high is good: choose one with --metric, and add "
                    "--best min or --best max; there are " +
                        joined(reported.names()));
    }
  } else if (any && !reported.has(options.metric)) {
    throw Failure(kUsage, "--metric: " + no_such_series(options.metric, reported.names()));
  }
  ranking.better = reported.better(ranking.series);
  if (options.best == "min") ranking.better = Better::kLower;
  if (options.best == "max") ranking.better = Better::kHigher;
  if (ranking.better == Better::kNeither && reported.has(ranking.series)) {
    throw Failure(kUsage, "--metric " + ranking.series +
                              ": it is not known whether low or high is good; add --best min " + "or --best max");
  }
  return ranking;
}

bool went_wrong(const Result& result) {
  return result.job.state() == "failed" || result.job.state() == "cancelled";
}

/// Sorts the best job first. Jobs without a value come after, and failed jobs last.
void sort_best_first(std::vector<Result>& results, Better better) {
  std::ranges::stable_sort(results, [better](const Result& a, const Result& b) {
    if (went_wrong(a) != went_wrong(b)) return went_wrong(b);
    const auto &left = a.ranked, &right = b.ranked;
    if (left.has_value() != right.has_value()) return left.has_value();
    if (!left || left->value == right->value) return false;
    return (left->value > right->value) == (better == Better::kHigher);
  });
}

/// Reads the series of all jobs in one answer.
void read_values(Client& client, const std::string& sweep, const Ranking& ranking, std::vector<Result>& results) {
  muster::v1::SweepMetricsRequest request;
  request.set_sweep(sweep);
  request.set_series(ranking.series);
  std::map<std::int64_t, Curve> curves;
  Contact::read<muster::v1::JobMetrics>(
      client, false, [&](grpc::ClientContext* context) { return client.jobs().SweepMetrics(context, request); },
      [&](const muster::v1::JobMetrics& some) {
        auto& curve = curves.try_emplace(some.job_id(), ranking.series).first->second;
        for (const auto& metric : some.metrics()) curve.add(metric);
      });
  for (auto& result : results) {
    const auto found = curves.find(result.job.id());
    if (found == curves.end()) continue;
    const auto& curve = found->second;
    result.last = curve.last();
    result.best = curve.best(ranking.better);
    result.ranked = ranking.by_best() ? result.best : curve.smoothed();
  }
}

Reported reported_by(const std::vector<Result>& results) {
  Reported reported;
  for (const auto& result : results) reported.add(result.job);
  return reported;
}

/// The sweep of the newest job that belongs to one; empty: there is none.
std::string newest_sweep(Client& client) {
  for (const auto& job : list_jobs(client, {{}, "", kNewestLookedAt}).jobs) {
    if (!job.sweep().sweep().empty()) return job.sweep().sweep();
  }
  return {};
}

/// The keys that the jobs' settings name, sorted.
std::vector<std::string> keys_of(const std::vector<Result>& results) {
  std::set<std::string> keys;
  for (const auto& result : results) {
    for (const auto& [key, value] : result.job.sweep().settings()) keys.insert(key);
  }
  return {keys.begin(), keys.end()};
}

std::string setting(const Result& result, const std::string& key) {
  const auto& settings = result.job.sweep().settings();
  const auto found = settings.find(key);
  return found == settings.end() ? "" : found->second;
}

nlohmann::ordered_json json_of_result(const Result& result, const Ranking& ranking) {
  nlohmann::ordered_json settings = nlohmann::ordered_json::object();
  for (const auto& key : keys_of({result})) settings[key] = setting(result, key);
  nlohmann::ordered_json row{{"job_id", result.job.id()},
                             {"name", result.job.name()},
                             {"sweep", result.job.sweep().sweep()},
                             {"index", result.job.sweep().index()},
                             {"settings", settings},
                             {"state", result.job.state()},
                             {"attempts", newest_attempt(result.job).number()},
                             {"metric", ranking.series},
                             {"ranked_by", ranking.text()}};
  const auto add = [&](const std::string& name, const std::optional<Curve::Point>& point) {
    row[name] = point ? nlohmann::ordered_json(point->value) : nullptr;
    row[name + "_step"] = point ? nlohmann::ordered_json(point->step) : nullptr;
  };
  add("value", result.ranked);
  add("best", result.best);
  add("final", result.last);
  return with_version(row);
}

void print_csv(const std::vector<Result>& results, const Ranking& ranking) {
  constexpr const char* kBefore[] = {"job_id", "name", "index", "state", "attempts"};
  constexpr const char* kAfter[] = {"metric",     "best",  "best_step",  "final",
                                    "final_step", "value", "value_step", "ranked_by"};
  const auto keys = keys_of(results);
  std::cout << joined(kBefore, ",");
  for (const auto& key : keys) std::cout << "," << csv_cell(key);
  std::cout << "," << joined(kAfter, ",") << "\n";
  for (const auto& result : results) {
    const auto row = json_of_result(result, ranking);
    std::string cells;
    for (const auto* name : kBefore) append(cells, csv_cell(row.at(name)), ",");
    for (const auto& key : keys) cells += "," + csv_cell(setting(result, key));
    for (const auto* name : kAfter) cells += "," + csv_cell(row.at(name));
    std::cout << cells << "\n";
  }
}

void print_table(const std::vector<Result>& results, const Ranking& ranking) {
  const auto keys = keys_of(results);
  const auto value = [](const auto& point) { return point ? number_text(point->value, 5) : "-"; };
  const auto step = [](const auto& point) { return point ? std::to_string(point->step) : "-"; };
  Table table;
  const auto add = [&](Table::Column column, auto text_of) { table.add(std::move(column), results, text_of); };
  add({"JOB", true}, [](const Result& result) { return std::to_string(result.job.id()); });
  add({(ranking.by_best() ? "BEST " : "MEAN ") + capitals_of(ranking.series), true},
      [&](const Result& result) { return value(result.ranked); });
  add({"AT STEP", true}, [&](const Result& result) { return step(result.ranked); });
  for (const auto& key : keys) {
    add({short_name(key, keys), false, 6}, [&](const Result& result) { return setting(result, key); });
  }
  add({"STATE", false, 0, true}, [](const Result& result) { return result.job.state(); });
  if (ranking.by_best()) {
    add({"FINAL", true}, [&](const Result& result) { return value(result.last); });
    add({"STEP", true}, [&](const Result& result) { return step(result.last); });
  }
  add({"ATT", true}, [](const Result& result) { return std::to_string(newest_attempt(result.job).number()); });
  std::cout << table.text();
}

void print(const std::vector<Result>& results, const Ranking& ranking, const ResultsOptions& options) {
  if (options.csv) return print_csv(results, ranking);
  if (options.json) {
    return print_json_array(results, [&](const Result& result) { return json_of_result(result, ranking); });
  }
  print_table(results, ranking);
  std::cerr << "muster: sorted by the " << ranking.text()
            << (options.metric.empty() && !ranking.by_best() ? "; no job has reported a validation loss" : "") << "\n";
}

int run_results(Session& session, const ResultsOptions& options) {
  auto& client = session.client();
  const auto sweep = options.sweep.empty() ? newest_sweep(client) : options.sweep;
  if (sweep.empty()) {
    if (options.json) std::cout << "[]\n";
    std::cerr << "muster: no sweep yet; submit one with muster submit --sweep KEY=VALUES JOB.toml\n";
    return kSuccess;
  }
  std::vector<Result> results;
  for (auto& job : jobs_of_sweep(client, sweep)) results.push_back({std::move(job)});
  const auto reported = reported_by(results);
  const auto ranking = decide(options, reported);
  if (reported.has(ranking.series)) read_values(client, sweep, ranking, results);
  sort_best_first(results, ranking.better);
  const auto all = results.size();
  if (options.top > 0 && options.top < all) results.resize(options.top);
  print(results, ranking, options);
  if (options.sweep.empty()) std::cerr << "muster: sweep " << sweep << ", the newest; choose another with --sweep\n";
  if (results.size() < all) std::cerr << "muster: the first " << results.size() << " of " << all << " jobs\n";
  return kSuccess;
}

}  // namespace

void define_results(CLI::App& app, Session& session) {
  auto options = add_action<ResultsOptions>(app, session, run_results);
  app.add_option("--sweep", options->sweep, "The sweep (default: the newest)")->type_name("SWEEP");
  app.add_option("--metric", options->metric,
                 "The series to compare (default: validation/loss, else another series on held-out data, else loss)")
      ->type_name("SERIES");
  app.add_option("--best", options->best, "Whether small or large is good (default: as the series says)")
      ->check(CLI::IsMember({"min", "max"}));
  add_number(app, "--top", options->top, 1, 10'000, "Only the first N");
  auto* json = app.add_flag("--json", options->json, "An array of results");
  app.add_flag("--csv", options->csv, "Comma-separated, with the names in the first line")->excludes(json);
}

}  // namespace cli
