#pragma once

#include <optional>
#include <string>
#include <vector>

#include "controller/service/parts.h"
#include "controller/service/standing.h"

namespace service {

/// Views of jobs for people: lists, pages, reasons, log files. Thread-safe; changes nothing.
class Views {
 public:
  explicit Views(const Parts& parts) : parts_(parts) {}

  muster::v1::ListResponse list(const muster::v1::ListRequest& request);
  common::Outcome<muster::v1::Job> get(core::JobId id);
  common::Outcome<muster::v1::JobSpec> spec(core::JobId id);
  common::Outcome<muster::v1::WhyResponse> why(core::JobId id);
  std::string log_path(core::JobId id, core::AttemptNumber attempt, core::RankNumber rank);
  std::string scheduler_log_path(core::JobId id, core::AttemptNumber attempt);
  /// A job's page. Throws store::Error, or std::runtime_error if the job has no stored spec.
  muster::v1::Job view(const jobs::JobPtr& job);

 private:
  /// The answer that `make` makes of a job; a refusal where there is no such job, or where the store can't be read.
  template <typename Answer, typename Make>
  common::Outcome<Answer> of_job(core::JobId id, const Make& make);
  /// The job, if it has this attempt and its files are there.
  jobs::JobPtr with_attempt(core::JobId id, core::AttemptNumber attempt);
  /// Asks every part that may know why the job waits.
  Standing standing(const core::Job& job);
  std::optional<ranks::LeastProgress> least_progress(const core::Job& job);
  /// Rows of metrics that are in no curve; empty: nothing is known of any.
  std::string left_out_note(const core::Job& job);
  /// Further facts that people should know: keys without effect, lines and sources that are wrong, a program that
  /// stands still.
  std::vector<std::string> notes(const core::Job& job, const muster::v1::JobSpec& spec);
  void fill_program(const core::Job& job, muster::v1::Job& out);
  /// A line of a list: the newest attempt alone, no spec, no ranks.
  muster::v1::Job line(const store::JobRow& row, const core::Job* open);
  void fill_ranks(const core::Job& job, const std::optional<store::MetricRow>& newest, muster::v1::Job& out);

  const Parts& parts_;
};

muster::v1::Event event_view(const store::StoredEvent& event);
muster::v1::Metric metric_view(const store::StepRow& row);

}  // namespace service
