#include <algorithm>
#include <iostream>
#include <map>

#include "cli/command.h"
#include "cli/job_pages.h"
#include "cli/series_text.h"
#include "cli/slurm_words.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "core/text.h"
#include "jobfile/toml_value.h"
#include "slurm/batch_script.h"

namespace cli {
namespace {

using muster::v1::Attempt;
using muster::v1::Job;
using muster::v1::Rank;

constexpr std::size_t kSeriesShown = 6;

std::string ranks_text(const Job& job) {
  const auto& resources = job.spec().resources();
  const auto ranks = std::uint64_t{resources.nodes()} * resources.ranks_per_node();
  return job.kind() + (ranks == 0 ? "" : ", " + core::count_text(ranks, "rank"));
}

std::string progress_text(const Job& job) {
  if (job.steps_total() == 0 && job.step() == 0) return "";
  auto text = std::to_string(job.step());
  if (job.steps_total() > 0) text += "/" + std::to_string(job.steps_total());
  if (job.last_checkpoint_step() > 0) text += ", last checkpoint at " + std::to_string(job.last_checkpoint_step());
  if (job.has_loss()) text += ", loss " + number_text(job.loss());
  if (job.has_tokens_per_s()) text += ", " + number_text(job.tokens_per_s()) + " tokens/s";
  return text;
}

std::string time_limit_text(const Job& job) {
  std::string text = job.time_limit_ms() > 0 ? duration_text(job.time_limit_ms()) + " an attempt" : "";
  const auto add = [&](const std::string& more) { text += (text.empty() ? "none; " : "; ") + more; };
  if (job.has_time_limit_asked_ms()) {
    const auto asked = job.time_limit_asked_ms();
    add((asked > 0 ? duration_text(asked) : std::string("none")) + " was asked for; Slurm has not answered yet");
  }
  if (!job.time_limit_problem().empty()) add(job.time_limit_problem());
  return text;
}

std::string waited_text(const Attempt& attempt) {
  return span_text(attempt.queued_at(), attempt.started_at().empty() ? attempt.ended_at() : attempt.started_at());
}

/// How long the attempt waited and ran, and where.
std::string attempt_text(const Attempt& attempt) {
  std::string text;
  const auto add = [&](const std::string& more) { append(text, more, "; "); };
  if (!attempt.scheduler_job().empty()) add("Slurm job " + attempt.scheduler_job());
  if (!attempt.queued_at().empty()) {
    add("queued " + utc_text(attempt.queued_at()) + ", waited " + waited_text(attempt));
  }
  if (!attempt.started_at().empty()) {
    add("started " + utc_text(attempt.started_at()) + (attempt.ended_at().empty() ? ", running for " : ", ran ") +
        span_text(attempt.started_at(), attempt.ended_at()));
  }
  if (attempt.nodes_size() > 0) add("on " + joined(attempt.nodes()));
  return text;
}

/// Prints what starts the job and what it waits for.
void print_scheduling(const Job& job) {
  print_entry("executor", job.executor());
  print_entry("scheduler", job.scheduler_problem());
  print_entry("waits for", joined(job.waits_for()));
  print_entry("time limit", time_limit_text(job));
  if (const auto& element = job.sweep(); !element.sweep().empty()) {
    print_entry("sweep", element.sweep() + ", " + settings_text(element));
  }
}

/// Prints the times of the whole job. Its first attempt counts as its start.
void print_times(const Job& job) {
  print_entry("submitted", utc_text(job.submitted_at()) + ", " + span_text(job.submitted_at(), "") + " ago");
  if (!job.started_at().empty()) {
    const bool over = !job.ended_at().empty();
    print_entry("started", utc_text(job.started_at()) + (over ? "" : ", " + span_text(job.started_at(), "") + " ago") +
                               (job.attempts_size() > 1 ? ", as attempt 1" : ""));
  }
  if (!job.ended_at().empty()) {
    const auto after = job.started_at().empty() ? "" : ", " + span_text(job.started_at(), job.ended_at()) + " later";
    print_entry("ended", utc_text(job.ended_at()) + after);
  }
  if (!job.next_attempt_at().empty()) print_entry("next attempt", utc_text(job.next_attempt_at()));
}

using Map = google::protobuf::Map<std::string, std::string>;

/// Prints one variable a line. The first line has the label.
void print_variables(std::string label, const Map& variables) {
  for (const auto& [name, value] : std::map<std::string, std::string>(variables.begin(), variables.end())) {
    const bool plain = std::ranges::none_of(value, [](char c) { return static_cast<unsigned char>(c) < 0x20; });
    print_path(label, name + "=" + (plain ? value : jobfile::toml_text(value)));
    label.clear();
  }
}

/// Prints what the job runs, where, its job file and its environment. For a recipe, only what commands have too.
void print_program(const muster::v1::JobSpec& spec) {
  std::string command;
  for (const auto& word : spec.command().argv()) append(command, slurm::shell_quote(word), " ");
  print_path("command", command);
  if (spec.has_command()) print_path("folder", spec.working_folder());
  print_path("job file", spec.job_file());
  if (spec.has_command() && !spec.environment().empty()) {
    print_entry("environment", spec.environment() == "clean" ? "clean: as after a fresh login"
                               : spec.submitted_env().empty()
                                   ? "submit: as after a fresh login; nothing taken from the submitter"
                                   : "submit: as after a fresh login, with variables from the submitter");
    print_variables("", spec.submitted_env());
  }
  print_variables("env", spec.env());
}

void print_summary(const Job& job, const std::vector<std::string>& words) {
  const auto state = status_of(job);
  std::cout << "job " << job.id() << "  " << job.name() << "  " << painted(state, colour_of_state(state)) << "\n";
  print_entry("reason", job.reason());
  print_entry("do", job.action());
  print_entry("Slurm says", job.scheduler_reason());
  print_entry("user", job.user());
  print_entry("kind", ranks_text(job));
  print_times(job);
  print_scheduling(job);
  print_program(job.spec());
  if (job.attempts_size() > 0) {
    const auto& newest = *job.attempts().rbegin();
    print_entry("attempt " + std::to_string(newest.number()), attempt_text(newest));
  }
  print_entry("step", progress_text(job));
  print_entry("series", other_series_text(job, kSeriesShown));
  print_path("logs", job.log_folder());
  print_path("Slurm's log", slurm_log_place(job));
  for (std::size_t i = 0; i < words.size(); ++i) print_path(i == 0 ? "ends with" : "", "| " + words[i]);
  print_path("checkpoints", job.checkpoint_folder());
  for (const auto& note : job.notes()) print_entry("note", note);
}

std::string resumed_text(const Attempt& attempt) {
  return attempt.has_resumed_from_step() ? std::to_string(attempt.resumed_from_step()) : "-";
}

void print_attempts(const Job& job) {
  if (job.attempts_size() == 0) return;
  Table table;
  const auto add = [&](Table::Column column, auto text_of) { table.add(std::move(column), job.attempts(), text_of); };
  add({"ATTEMPT", true}, [](const Attempt& attempt) { return std::to_string(attempt.number()); });
  add({"STATE", false, 0, true}, [](const Attempt& attempt) { return attempt.state(); });
  add({"CAUSE"}, [](const Attempt& attempt) { return or_dash(attempt.cause()); });
  add({"FROM", true}, resumed_text);
  add({"STARTED (UTC)"}, [](const Attempt& attempt) { return time_text(attempt.started_at()).substr(0, 19); });
  add({"RAN", true}, [](const Attempt& attempt) { return span_text(attempt.started_at(), attempt.ended_at()); });
  if (std::ranges::any_of(job.attempts(), [](const Attempt& attempt) { return !attempt.scheduler_job().empty(); })) {
    add({"SLURM", true}, [](const Attempt& attempt) { return or_dash(attempt.scheduler_job()); });
    add({"WAITED", true}, waited_text);
    add({"NODES", false, 6}, [](const Attempt& attempt) { return or_dash(joined(attempt.nodes())); });
  }
  add({"REASON", false, 10}, [](const Attempt& attempt) { return attempt.reason(); });
  std::cout << "\n" << table.text();
}

std::string end_text(const Rank& rank) {
  if (rank.has_signal() && rank.signal() != 0) return "signal " + std::to_string(rank.signal());
  return rank.has_exit_code() ? "exit " + std::to_string(rank.exit_code()) : "";
}

void print_ranks(const Job& job) {
  if (job.ranks_size() == 0) return;
  Table table;
  const auto add = [&](Table::Column column, auto text_of) { table.add(std::move(column), job.ranks(), text_of); };
  const auto known = [](bool is_known, const std::string& text) { return is_known ? text : "-"; };
  add({"RANK", true}, [](const Rank& rank) { return std::to_string(rank.rank()); });
  add({"NODE", false, 8}, [](const Rank& rank) { return rank.node(); });
  add({"PID", true}, [&](const Rank& rank) { return known(rank.pid() > 0, std::to_string(rank.pid())); });
  add({"STATE", false, 0, true}, [](const Rank& rank) { return rank.state(); });
  add({"SECTION"}, [](const Rank& rank) { return or_dash(rank.section()); });
  add({"STEP", true}, [&](const Rank& rank) { return known(rank.has_step(), std::to_string(rank.step())); });
  add({"HEARD", true},
      [&](const Rank& rank) { return known(rank.has_last_heartbeat_ms(), duration_text(rank.last_heartbeat_ms())); });
  add({"MEMORY", true},
      [&](const Rank& rank) { return known(rank.memory_bytes() > 0, bytes_text(rank.memory_bytes())); });
  add({"MS/STEP", true}, [&](const Rank& rank) { return known(rank.step_ms() > 0, number_text(rank.step_ms(), 3)); });
  if (std::ranges::any_of(job.ranks(), [](const Rank& rank) { return rank.has_slowness(); })) {
    add({"SLOW", true},
        [&](const Rank& rank) { return known(rank.has_slowness(), number_text(rank.slowness(), 2) + "x"); });
  }
  add({"END"}, end_text);
  std::cout << "\n" << table.text();
}

int run_show(Session& session, const JobsOptions& options) {
  auto& client = session.client();
  const auto print = [&, lead = ""](const Job& job) mutable {
    std::cout << std::exchange(lead, "\n");
    print_summary(job, slurm_words(client, job));
    print_attempts(job);
    print_ranks(job);
  };
  return ask_each(
      "show", options.jobs, options.json, [&](std::int64_t id) { return client.call(&JobStub::Get, of_job(id)); },
      print);
}

}  // namespace

void define_show(CLI::App& app, Session& session) {
  auto options = add_action<JobsOptions>(app, session, run_show);
  add_jobs(app, options->jobs)->required();
  app.add_flag("--json", options->json, "The whole job with its spec, as an object; several jobs as an array");
}

}  // namespace cli
