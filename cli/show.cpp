#include <algorithm>
#include <iostream>
#include <map>
#include <sstream>

#include "cli/cli_command.h"
#include "cli/cli_text.h"
#include "cli/follow.h"
#include "cli/list.h"
#include "cli/metrics.h"
#include "controller/core/core_text.h"
#include "slurm/batch_script.h"
#include "spec/jobfile/job_file.h"
#include "spec/jobfile/spec.h"
#include "spec/jobfile/toml_value.h"
#include "spec/variables.h"

namespace cli {
namespace {

using muster::v1::Attempt;
using muster::v1::Event;
using muster::v1::Job;
using muster::v1::Rank;

constexpr std::size_t kSeriesShown = 6;
constexpr std::size_t kSettingsShown = 20;
constexpr std::size_t kTraceLinesShown = 12;

std::string ranks_text(const Job& job) {
  const auto ranks = jobfile::world_size(job.spec());
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

/// Prints the newest checkpoints of a program, one a line.
void print_checkpoints(const Job& job) {
  for (const auto& saved : job.checkpoints()) {
    print_path("", "step " + std::to_string(saved.step()) +
                       (saved.has_bytes() ? ", " + bytes_text(saved.bytes()) : "") + ": " + saved.path());
  }
}

/// Prints the settings that the program has told, one a line.
void print_settings(const Job& job) {
  const std::map<std::string, std::string> settings(job.config().begin(), job.config().end());
  std::string label = "settings";
  std::size_t shown = 0;
  for (const auto& [name, value] : settings) {
    if (shown++ == kSettingsShown) {
      return print_entry("", "and " + std::to_string(settings.size() - kSettingsShown) + " more: muster show " +
                                 std::to_string(job.id()) + " --json");
    }
    print_path(label, name + " = " + jobfile::shown(value));
    label.clear();
  }
}

/// Prints the end of the trace that the program reported with its error.
void print_trace(const Job& job) {
  std::vector<std::string> lines;
  std::istringstream trace(newest_attempt(job).trace());
  for (std::string line; std::getline(trace, line);) lines.push_back(line);
  const auto first = lines.size() > kTraceLinesShown ? lines.size() - kTraceLinesShown : 0;
  for (auto i = first; i < lines.size(); ++i) print_path(i == first ? "trace" : "", "| " + lines[i]);
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
    print_entry("attempt " + std::to_string(newest_attempt(job).number()), attempt_text(newest_attempt(job)));
  }
  print_entry("status", job.program_status());
  print_entry("step", progress_text(job));
  print_entry("hang limit", job.hang_limit());
  print_entry("series", other_series_text(job, kSeriesShown));
  print_path("logs", job.log_folder());
  print_path("Slurm's log", slurm_log_place(job));
  for (std::size_t i = 0; i < words.size(); ++i) print_path(i == 0 ? "ends with" : "", "| " + words[i]);
  print_path("checkpoints", job.checkpoint_folder());
  print_checkpoints(job);
  print_settings(job);
  print_trace(job);
  for (const auto& note : job.notes()) print_entry("note", note);
}

void print_attempts(const Job& job) {
  if (job.attempts_size() == 0) return;
  Table table;
  const auto add = [&](Table::Column column, auto text_of) { table.add(std::move(column), job.attempts(), text_of); };
  add({"ATTEMPT", true}, [](const Attempt& attempt) { return std::to_string(attempt.number()); });
  add({"STATE", false, 0, true}, &Attempt::state);
  add({"CAUSE"}, [](const Attempt& attempt) { return or_dash(attempt.cause()); });
  add({"FROM", true}, [](const Attempt& attempt) {
    return attempt.has_resumed_from_step() ? std::to_string(attempt.resumed_from_step()) : "-";
  });
  add({"STARTED (UTC)"}, [](const Attempt& attempt) { return time_text(attempt.started_at()); });
  add({"RAN", true}, [](const Attempt& attempt) { return span_text(attempt.started_at(), attempt.ended_at()); });
  if (std::ranges::any_of(job.attempts(), [](const Attempt& attempt) { return !attempt.scheduler_job().empty(); })) {
    add({"SLURM", true}, [](const Attempt& attempt) { return or_dash(attempt.scheduler_job()); });
    add({"WAITED", true}, waited_text);
    add({"NODES", false, 6}, [](const Attempt& attempt) { return or_dash(joined(attempt.nodes())); });
  }
  add({"REASON", false, 10}, &Attempt::reason);
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
  add({"NODE", false, 8}, &Rank::node);
  add({"PID", true}, [&](const Rank& rank) { return known(rank.pid() > 0, std::to_string(rank.pid())); });
  add({"STATE", false, 0, true}, &Rank::state);
  add({"SECTION"}, [](const Rank& rank) { return or_dash(rank.section()); });
  add({"STEP", true}, [&](const Rank& rank) { return known(rank.has_step(), std::to_string(rank.step())); });
  add({"HEARD", true},
      [&](const Rank& rank) { return known(rank.has_last_heartbeat_ms(), duration_text(rank.last_heartbeat_ms())); });
  add({"CORES", true}, cores_text);
  add({"MEMORY", true}, memory_text);
  if (std::ranges::any_of(job.ranks(), [](const Rank& rank) { return !rank.gpus().empty(); })) {
    add({"GPUS", true}, gpus_text);
  }
  if (std::ranges::any_of(job.ranks(), has_gpu)) {
    add({"GPU%", true}, gpu_text);
    add({"GPU MEM", true}, gpu_memory_text);
  }
  add({"MS/STEP", true}, [&](const Rank& rank) { return known(rank.step_ms() > 0, number_text(rank.step_ms(), 3)); });
  if (std::ranges::any_of(job.ranks(), [](const Rank& rank) { return rank.has_slowness(); })) {
    add({"SLOW", true},
        [&](const Rank& rank) { return known(rank.has_slowness(), number_text(rank.slowness(), 2) + "x"); });
  }
  add({"END"}, end_text);
  std::cout << "\n" << table.text();
}

/// Asks as ask_each() does, with an empty line between the answers.
template <auto method, typename Print>
int show_each(Client& client, const std::string& command, const JobsOptions& options, Print print) {
  const auto ask = [&](std::int64_t id) { return client.call(method, of_job(id)); };
  return ask_each(command, options.jobs, options.json, ask, [&, lead = ""](const auto& answer) mutable {
    std::cout << std::exchange(lead, "\n");
    print(answer);
  });
}

int run_show(Session& session, const JobsOptions& options) {
  auto& client = session.client();
  return show_each<&JobStub::Get>(client, "show", options, [&](const Job& job) {
    print_summary(job, slurm_words(client, job));
    print_attempts(job);
    print_ranks(job);
  });
}

std::string expected_text(const std::string& at) {
  const auto start = time_ms(at);
  if (start < 0) return "";
  const auto left = start - now_ms();
  return utc_text(at) + (left > 0 ? ", in " + duration_text(left) : "");
}

void print_why(const muster::v1::WhyResponse& why) {
  const auto& status = why.status().empty() ? why.state() : why.status();
  std::cout << "job " << why.job_id() << "  " << painted(status, colour_of_state(status)) << "\n";
  print_entry("why", why.reason());
  print_entry("do", why.action());
  print_entry("Slurm says", why.scheduler_reason());
  print_entry("starts", expected_text(why.expected_start()));
  for (const auto& note : why.notes()) print_entry("note", note);
}

int run_why(Session& session, const JobsOptions& options) {
  return show_each<&JobStub::Why>(session.client(), "why", options, print_why);
}

struct SpecOptions {
  std::int64_t job = 0;
  bool secrets = false;
};

/// The masked secrets: "env.WANDB_API_KEY, env.HF_TOKEN"; empty: there are none.
std::string secrets_of(const muster::v1::JobSpec& spec) {
  std::string names;
  const auto add = [&](const char* table, const Map& variables) {
    for (const auto& [name, value] : std::map<std::string, std::string>(variables.begin(), variables.end())) {
      if (spec::is_secret(name, value)) append(names, table + name);
    }
  };
  add("env.", spec.env());
  add("submitted_env.", spec.submitted_env());
  return names;
}

/// Comments at the head of the file that tell its origin.
std::string header_of(std::int64_t id, const muster::v1::JobSpec& spec) {
  std::string text = "# The settings of job " + std::to_string(id);
  if (!spec.job_file().empty()) text += ", submitted from " + jobfile::shown(spec.job_file());
  text += ".\n";
  if (spec.has_sweep() && spec.sweep().settings_size() > 0) {
    text += "# The job is one of a sweep: " + jobfile::shown(settings_text(spec.sweep())) + "\n";
  }
  return text;
}

int run_spec(Session& session, const SpecOptions& options) {
  auto spec = session.client().call(&JobStub::GetSpec, of_job(options.job));
  const auto hidden = options.secrets ? std::string() : secrets_of(spec);
  if (!options.secrets) jobfile::mask_secrets(spec);
  std::cout << header_of(options.job, spec) << jobfile::job_file_text(spec);
  if (!hidden.empty()) {
    std::cerr << "muster: these secrets are hidden: " << hidden << "; --secrets prints them, and muster submit --like "
              << options.job << " uses their values\n";
  }
  return kSuccess;
}

struct EventsOptions {
  std::int64_t job = 0;
  bool follow = false, json = false;
};

/// Prints "2026-11-20 19:48:55 UTC  job 1.2  rank_exited         what happened". Further lines are indented.
void print_event(const Event& event, bool name_job) {
  auto lead = utc_text(event.at()) + "  ";
  auto subject = name_job ? "job " + std::to_string(event.job_id()) : std::string();
  if (event.attempt() > 0) subject += (name_job ? " attempt " : "attempt ") + std::to_string(event.attempt());
  const std::size_t subject_width = name_job ? 18 : 10;
  lead += subject + std::string(subject_width - std::min(subject_width, subject.size()), ' ') + "  ";
  print_behind(lead, lead.size(), event.text().empty() ? event.type() : event.text());
}

int run_events(Session& session, const EventsOptions& options) {
  auto& client = session.client();
  muster::v1::EventsRequest request;
  request.set_job_id(options.job);
  request.set_follow(options.follow);
  JsonRows rows(options.follow ? JsonRows::Form::kLines : JsonRows::Form::kArray);
  const auto take = [&](const Event& event) {
    request.set_after_id(event.id());
    options.json ? rows.add(json_of(event)) : print_event(event, options.job == 0);
    if (options.follow) std::cout << std::flush;
  };
  const auto open = [&](grpc::ClientContext* context) { return client.jobs().Events(context, request); };
  const auto end = Contact::read<Event>(client, options.follow, open, take);
  if (options.json) rows.end();
  return end == StreamEnd::kInterrupted ? kInterrupted : kSuccess;
}

}  // namespace

void define_show(CLI::App& app, Session& session) {
  auto options = add_action<JobsOptions>(app, session, run_show);
  add_jobs(app, options->jobs)->required();
  app.add_flag("--json", options->json, "The whole job with its spec, as an object; several jobs as an array");
}

void define_why(CLI::App& app, Session& session) {
  auto options = add_action<JobsOptions>(app, session, run_why);
  add_jobs(app, options->jobs)->required();
  app.add_flag("--json", options->json,
               "{api_version, job_id, state, reason, action, scheduler_reason, expected_start, status, notes}; several "
               "as an array");
}

void define_spec(CLI::App& app, Session& session) {
  auto options = add_action<SpecOptions>(app, session, run_spec);
  add_job(app, options->job);
  app.add_flag("--secrets", options->secrets, "Also print secrets");
}

void define_events(CLI::App& app, Session& session) {
  auto options = add_action<EventsOptions>(app, session, run_events);
  add_job(app, options->job)->required(false);
  app.add_flag("-f,--follow", options->follow,
               "Go on with new events until the job ends, or for all jobs until Ctrl-C");
  app.add_flag("--json", options->json, "An array; with -f one object a line");
}

}  // namespace cli
