#include <iostream>

#include "cli/command.h"
#include "cli/contact.h"
#include "cli/terminal.h"
#include "cli/text.h"

namespace cli {
namespace {

using muster::v1::Event;

struct EventsOptions {
  std::int64_t job = 0;
  bool follow = false;
  bool json = false;
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
    if (options.json) {
      rows.add(json_of(event));
    } else {
      print_event(event, options.job == 0);
    }
    if (options.follow) std::cout << std::flush;
  };
  const auto open = [&](grpc::ClientContext* context) { return client.jobs().Events(context, request); };
  const auto end = Contact::read<Event>(client, options.follow, open, take);
  if (options.json) rows.end();
  return end == StreamEnd::kInterrupted ? kInterrupted : kSuccess;
}

}  // namespace

void define_events(CLI::App& app, Session& session) {
  auto options = add_action<EventsOptions>(app, session, run_events);
  add_job(app, options->job)->required(false);
  app.add_flag("-f,--follow", options->follow,
               "Go on with new events until the job ends, or for all jobs until Ctrl-C");
  app.add_flag("--json", options->json, "An array; with -f one object a line");
}

}  // namespace cli
