#include <algorithm>
#include <array>
#include <iostream>

#include "cli/command.h"
#include "cli/contact.h"
#include "cli/json_view.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "cli/usage.h"

namespace cli {
namespace {

using muster::v1::Metric;

struct MetricsOptions {
  std::int64_t job = 0;
  std::uint32_t attempt = 0;
  bool follow = false;
  bool json = false;
  bool csv = false;
};

/// Columns of a fixed width: rows are printed as they come.
std::string row_text(const std::array<std::string, 8>& cells) {
  constexpr std::array<std::size_t, 8> kWidths{3, 8, 9, 9, 9, 11, 10, 8};
  std::string text;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const auto width = kWidths[i] + (i == 0 ? 0 : 1);
    if (text.size() + width > table_columns()) break;  // a narrow terminal: the last columns go
    text += std::string(width - std::min(width, cells[i].size()), ' ') + cells[i];
  }
  return text;
}

void print_human_head() {
  std::cout << painted(row_text({"ATT", "STEP", "LOSS", "TOK/S", "MS/STEP", "PEAK MEMORY", "LR", "VAL LOSS"}),
                       Colour::kDim)
            << "\n";
}

void print_human(const Metric& metric) {
  std::cout << row_text({std::to_string(metric.attempt()), std::to_string(metric.step()), number_text(metric.loss(), 5),
                         number_text(metric.tokens_per_s()), number_text(metric.step_ms()),
                         bytes_text(metric.memory_peak_bytes()), number_text(metric.learning_rate(), 3),
                         metric.has_validation_loss() ? number_text(metric.validation_loss(), 5) : "-"})
            << "\n";
}

/// Every field, in the order of the message; absent ones are empty.
void print_csv(const Metric& metric, bool head) {
  const auto row = json_of(metric);
  std::string names, values;
  for (const auto& [key, value] : row.items()) {
    if (key == "api_version") continue;
    names += (names.empty() ? "" : ",") + key;
    values += (values.empty() ? "" : ",") + (value.is_null() ? std::string() : value.dump());
  }
  if (head) std::cout << names << "\n";
  std::cout << values << "\n";
}

class Printer {
 public:
  explicit Printer(const MetricsOptions& options) : options_(options), rows_(options.follow) {}

  void take(const Metric& metric) {
    // After a lost connection the stream begins again: what was seen is left out.
    const auto at = std::pair(metric.attempt(), metric.step());
    if (at <= newest_) return;
    newest_ = at;
    if (options_.json) {
      rows_.add(json_of(metric));
    } else if (options_.csv) {
      print_csv(metric, !any_);
    } else {
      if (!any_) print_human_head();
      print_human(metric);
    }
    any_ = true;
    if (options_.follow) std::cout << std::flush;
  }
  void end() {
    if (options_.json) return rows_.end();
    if (any_) return;
    std::cerr << "muster: job " << options_.job << " has no metrics "
              << (options_.attempt > 0 ? "of attempt " + std::to_string(options_.attempt) : "yet")
              << ": only a program that reports its steps has metrics, from its first step on; muster-worker does\n";
  }

 private:
  const MetricsOptions& options_;
  JsonRows rows_;
  std::pair<std::uint32_t, std::int64_t> newest_{0, 0};
  bool any_ = false;
};

int run_metrics(Session& session, const MetricsOptions& options) {
  auto& client = session.client();
  muster::v1::MetricsRequest request;
  request.set_job_id(options.job);
  request.set_attempt(options.attempt);
  request.set_follow(options.follow);
  Printer printer(options);
  const auto take = [&](const Metric& metric) { printer.take(metric); };
  const auto open = [&](grpc::ClientContext* context) { return client.jobs().Metrics(context, request); };
  auto end = StreamEnd::kComplete;
  if (options.follow) {
    end = Contact(client).follow<Metric>(open, take);
  } else {
    Contact::read<Metric>(client, open, take);
  }
  printer.end();
  return end == StreamEnd::kInterrupted ? kInterrupted : kSuccess;
}

}  // namespace

void define_metrics(CLI::App& app, Session& session) {
  auto options = add_action<MetricsOptions>(app, session, run_metrics);
  add_job(app, options->job);
  app.add_option("--attempt", options->attempt, "Only this attempt")
      ->check(whole_number(1, UINT32_MAX))
      ->type_name("N");
  app.add_flag("-f,--follow", options->follow, "Go on with new steps until the job ends");
  auto* json = app.add_flag("--json", options->json, "An array; with -f one object a line");
  app.add_flag("--csv", options->csv, "Comma-separated, the names in the first line")->excludes(json);
}

}  // namespace cli
