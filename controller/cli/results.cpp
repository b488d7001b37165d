#include <algorithm>
#include <iostream>
#include <map>
#include <set>

#include "cli/command.h"
#include "cli/contact.h"
#include "cli/job_pages.h"
#include "cli/json_view.h"
#include "cli/results_curve.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "cli/usage.h"
#include "spec/key_names.h"

namespace cli {
namespace {

constexpr std::uint32_t kNewestLookedAt = 10'000;

struct ResultsOptions {
  std::string sweep;
  std::string metric;  // empty: see metric_of
  std::string best;
  std::uint32_t top = 0;
  bool csv = false;
  bool json = false;
};

/// What one metric of a job comes to.
struct Values {
  std::optional<Curve::Point> last, best;
  std::optional<Curve::Point> ranked;  // what the job is compared by
};

struct Result {
  muster::v1::Job job;
  std::map<std::string, Values> of;  // by metric
  Values values;                     // of the metric that was decided on
};

/// The metric that was asked for and how jobs are compared by it.
struct Ranking {
  std::string metric;
  Best best = Best::kMin;

  /// A validation loss is measured on the same text each time, so a job's best is its own. A training loss is one
  /// batch's, and throughput one moment's: the best of many is the luckiest.
  bool by_best() const { return metric == "validation_loss"; }
  std::string text() const {
    if (by_best()) return std::string(best == Best::kMin ? "lowest " : "highest ") + metric;
    return "mean " + metric + " of the last " + std::to_string(Curve::kSmoothedSteps) + " steps";
  }
};

Best best_of(const ResultsOptions& options, const std::string& metric) {
  if (options.best.empty()) return metric == "tokens_per_s" ? Best::kMax : Best::kMin;
  return options.best == "max" ? Best::kMax : Best::kMin;
}

bool went_wrong(const Result& result) {
  return result.job.state() == "failed" || result.job.state() == "cancelled";
}

/// Best first; then those without a value; then those that failed.
void sort_best_first(std::vector<Result>& results, Best best) {
  std::ranges::stable_sort(results, [best](const Result& a, const Result& b) {
    if (went_wrong(a) != went_wrong(b)) return went_wrong(b);
    const auto &left = a.values.ranked, &right = b.values.ranked;
    if (left.has_value() != right.has_value()) return left.has_value();
    if (!left || left->value == right->value) return false;
    return (left->value < right->value) == (best == Best::kMin);
  });
}

Result result_of(Client& client, muster::v1::Job job, const ResultsOptions& options) {
  muster::v1::MetricsRequest request;
  request.set_job_id(job.id());
  std::map<std::string, Curve> curves;
  for (const auto& metric : options.metric.empty() ? std::vector<std::string>{"validation_loss", "loss"}
                                                   : std::vector<std::string>{options.metric}) {
    curves.emplace(metric, Curve(metric));
  }
  Contact::read<muster::v1::Metric>(
      client, [&](grpc::ClientContext* context) { return client.jobs().Metrics(context, request); },
      [&](const muster::v1::Metric& metric) {
        for (auto& [name, curve] : curves) curve.add(metric);
      });
  Result result{std::move(job), {}, {}};
  for (const auto& [name, curve] : curves) {
    const Ranking ranking{name, best_of(options, name)};
    auto& values = result.of[name];
    values = {curve.last(), curve.best(ranking.best), {}};
    values.ranked = ranking.by_best() ? values.best : curve.smoothed();
  }
  return result;
}

/// Decides on the metric: where none is asked for, the validation loss as soon as a job has one.
Ranking decide(const ResultsOptions& options, std::vector<Result>& results) {
  auto metric = options.metric;
  if (metric.empty()) {
    const bool validated =
        std::ranges::any_of(results, [](Result& result) { return result.of["validation_loss"].ranked.has_value(); });
    metric = validated ? "validation_loss" : "loss";
  }
  for (auto& result : results) result.values = result.of[metric];
  return {metric, best_of(options, metric)};
}

/// The newest job's that is of one; empty: there is none.
std::string newest_sweep(Client& client) {
  Listing listing;
  const auto status = read_jobs(client, {{}, "", kNewestLookedAt}, &listing);
  if (!status.ok()) throw client.failure(status);
  for (const auto& job : listing.jobs) {
    if (!job.sweep().sweep().empty()) return job.sweep().sweep();
  }
  return {};
}

/// Of all jobs, sorted.
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

std::uint32_t attempts_of(const Result& result) {
  return result.job.attempts_size() == 0 ? 0 : result.job.attempts().rbegin()->number();
}

nlohmann::ordered_json json_of_result(const Result& result, const Ranking& ranking) {
  nlohmann::ordered_json settings = nlohmann::ordered_json::object();
  for (const auto& key : keys_of({result})) settings[key] = setting(result, key);
  nlohmann::ordered_json row{
      {"job_id", result.job.id()},           {"name", result.job.name()}, {"sweep", result.job.sweep().sweep()},
      {"index", result.job.sweep().index()}, {"settings", settings},      {"state", result.job.state()},
      {"attempts", attempts_of(result)},     {"metric", ranking.metric},  {"ranked_by", ranking.text()}};
  const auto add = [&](const std::string& name, const std::optional<Curve::Point>& point) {
    row[name] = point ? nlohmann::ordered_json(point->value) : nullptr;
    row[name + "_step"] = point ? nlohmann::ordered_json(point->step) : nullptr;
  };
  add("value", result.values.ranked);
  add("best", result.values.best);
  add("final", result.values.last);
  return with_version(row);
}

std::string csv_quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

void print_csv(const std::vector<Result>& results, const Ranking& ranking) {
  const auto keys = keys_of(results);
  std::cout << "job_id,name,index,state,attempts";
  for (const auto& key : keys) std::cout << "," << csv_quoted(key);
  std::cout << ",metric,best,best_step,final,final_step,value,value_step,ranked_by\n";
  for (const auto& result : results) {
    const auto& job = result.job;
    std::cout << job.id() << "," << csv_quoted(job.name()) << "," << job.sweep().index() << "," << job.state() << ","
              << attempts_of(result);
    for (const auto& key : keys) std::cout << "," << csv_quoted(setting(result, key));
    std::cout << "," << ranking.metric;
    for (const auto& point : {result.values.best, result.values.last, result.values.ranked}) {
      // As JSON has it: every digit that tells two numbers apart.
      std::cout << ","
                << (point ? nlohmann::json(point->value).dump() + "," + std::to_string(point->step) : std::string(","));
    }
    std::cout << "," << ranking.text() << "\n";
  }
}

void print_table(const std::vector<Result>& results, const Ranking& ranking) {
  const auto keys = keys_of(results);
  std::multiset<std::string> leaves;
  for (const auto& key : keys) leaves.insert(spec::leaf_of(key));
  auto title = (ranking.by_best() ? "best " : "mean ") + ranking.metric;
  for (char& c : title) c = static_cast<char>(c == '_' ? ' ' : std::toupper(static_cast<unsigned char>(c)));
  std::vector<Table::Column> columns{{"JOB", true}, {title, true}, {"AT STEP", true}};
  for (const auto& key : keys) columns.push_back({leaves.count(spec::leaf_of(key)) == 1 ? spec::leaf_of(key) : key});
  for (auto& column : columns) column.shrinks = column.right ? 0 : 6;
  columns.push_back({"STATE", false, 0, true});
  if (ranking.by_best()) columns.insert(columns.end(), {{"FINAL", true}, {"STEP", true}});
  columns.push_back({"ATT", true});
  Table table(columns);
  for (const auto& result : results) {
    const auto value = [](const auto& point) { return point ? number_text(point->value, 5) : "-"; };
    const auto step = [](const auto& point) { return point ? std::to_string(point->step) : "-"; };
    const auto& [last, best, ranked] = result.values;
    std::vector<std::string> row{std::to_string(result.job.id()), value(ranked), step(ranked)};
    for (const auto& key : keys) row.push_back(setting(result, key));
    row.push_back(result.job.state());
    if (ranking.by_best()) row.insert(row.end(), {value(last), step(last)});
    row.push_back(std::to_string(attempts_of(result)));
    table.add(std::move(row));
  }
  std::cout << table.text();
}

void print(const std::vector<Result>& results, const Ranking& ranking, const ResultsOptions& options) {
  if (options.csv) return print_csv(results, ranking);
  if (!options.json) {
    print_table(results, ranking);
    std::cerr << "muster: by the " << ranking.text()
              << (options.metric.empty() && !ranking.by_best() ? "; no job has reported a validation loss" : "")
              << "\n";
    return;
  }
  JsonRows rows(false);
  for (const auto& result : results) rows.add(json_of_result(result, ranking));
  rows.end();
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
  for (auto& job : jobs_of_sweep(client, sweep)) results.push_back(result_of(client, std::move(job), options));
  const auto ranking = decide(options, results);
  sort_best_first(results, ranking.best);
  const auto all = results.size();
  if (options.top > 0 && options.top < all) results.resize(options.top);
  print(results, ranking, options);
  if (options.sweep.empty()) std::cerr << "muster: sweep " << sweep << ", the newest; --sweep names another\n";
  if (results.size() < all) std::cerr << "muster: the first " << results.size() << " of " << all << " jobs\n";
  return kSuccess;
}

}  // namespace

void define_results(CLI::App& app, Session& session) {
  auto options = add_action<ResultsOptions>(app, session, run_results);
  app.add_option("--sweep", options->sweep, "Which sweep; otherwise the newest")->type_name("SWEEP");
  app.add_option("--metric", options->metric,
                 "What to compare; otherwise validation_loss where a job has reported it, else loss")
      ->check(CLI::IsMember({"loss", "validation_loss", "tokens_per_s"}));
  app.add_option("--best", options->best, "Whether small or large is good; otherwise as the metric wants")
      ->check(CLI::IsMember({"min", "max"}));
  app.add_option("--top", options->top, "Only the first so many")->check(whole_number(1, 10'000))->type_name("N");
  auto* json = app.add_flag("--json", options->json, "An array of results");
  app.add_flag("--csv", options->csv, "Comma-separated, the names in the first line")->excludes(json);
}

}  // namespace cli
