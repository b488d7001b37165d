#include "agent/rank/grpc/grpc_words.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <stdexcept>

#include "agent/rank/jsonl_reporter.h"
#include "base/utf8.h"

namespace agent::rank {
namespace {

namespace v1 = muster::v1;
constexpr std::size_t kMaxReason = 2'000;
constexpr std::size_t kMaxStatus = 500;
constexpr std::size_t kMaxTrace = 8'000;

/// The beginning of a text, as protobuf takes it.
std::string fit(std::string_view text, std::size_t most) {
  auto fitting = base::valid_utf8(text);
  std::size_t end = std::min(fitting.size(), most);
  while (end < fitting.size() && (static_cast<unsigned char>(fitting[end]) & 0xC0) == 0x80) --end;
  fitting.resize(end);
  return fitting;
}

}  // namespace

std::string fit_reason(std::string_view text) {
  return fit(text, kMaxReason);
}

v1::Section wire(Section section) {
  switch (section) {
    case Section::kInit:
      return v1::SECTION_INIT;
    case Section::kData:
      return v1::SECTION_DATA;
    case Section::kStep:
    case Section::kEvaluate:
      return v1::SECTION_STEP;
    case Section::kCheckpoint:
      return v1::SECTION_CHECKPOINT;
    case Section::kDone:
      return v1::SECTION_DONE;
  }
  return v1::SECTION_INIT;
}

std::string wire_name(Section section) {
  return section == Section::kEvaluate ? "evaluate" : "";
}

void write(const RankNews& news, v1::HeartbeatRequest& to) {
  to.set_step(news.step);
  to.set_step_ms(news.step_ms);
  to.set_section(wire(news.section));
  to.set_section_name(news.words.section.empty() ? wire_name(news.section) : fit(news.words.section, kMaxStatus));
  to.set_blind(news.words.blind);
  if (news.resumed_from) to.set_resumed_from_step(*news.resumed_from);
}

v1::CheckpointSaved wire(const std::string& path, std::int64_t step, std::int64_t bytes, double took_ms) {
  v1::CheckpointSaved saved;
  saved.set_path(fit_reason(path));
  saved.set_step(step);
  saved.set_bytes(bytes);
  saved.set_took_ms(took_ms);
  saved.set_at_ms(now_ms());
  return saved;
}

v1::ProgramWords wire(const ProgramWords& words) {
  v1::ProgramWords out;
  out.set_status(fit(words.status, kMaxStatus));
  out.set_total_steps(words.total_steps);
  out.set_config(words.config);
  if (words.error) {
    auto& error = *out.mutable_error();
    error.set_type(fit(words.error->type, kMaxStatus));
    error.set_message(fit(words.error->message, kMaxReason));
    error.set_trace(fit(words.error->trace, kMaxTrace));
  }
  out.set_bad_lines(words.bad_lines);
  out.set_first_bad_line(fit(words.first_bad_line, kMaxStatus));
  // A recipe has no [report], so its note has that place.
  out.set_source_trouble(fit(words.source_trouble.empty() ? words.note : words.source_trouble, kMaxStatus));
  return out;
}

v1::TraceReport wire(const TraceReport& report) {
  v1::TraceReport out;
  out.set_number(report.number);
  out.set_first_step(report.first);
  out.set_steps(static_cast<std::uint32_t>(report.steps));
  for (const auto step : report.steps_written) out.add_steps_written(step);
  out.set_problem(fit_reason(report.problem));
  out.set_over(report.over);
  return out;
}

v1::RankKey key_of(const RankEnvironment& environment) {
  v1::RankKey key;
  std::int64_t job = 0;
  const auto& text = environment.job_id;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), job);
  if (error != std::errc() || end != text.data() + text.size() || job <= 0) {
    throw std::invalid_argument("environment: MUSTER_JOB_ID=\"" + text +
                                "\" is not a job's number; unset MUSTER_CONTROLLER to run without a controller");
  }
  if (environment.attempt <= 0) {
    throw std::invalid_argument(
        "environment: MUSTER_ATTEMPT is not set; unset MUSTER_CONTROLLER to run without a controller");
  }
  key.set_job_id(job);
  key.set_attempt(static_cast<std::uint32_t>(environment.attempt));
  key.set_rank(static_cast<std::uint32_t>(environment.rank));
  return key;
}

Endpoint controller_of(const RankEnvironment& environment) {
  if (environment.controller) return *environment.controller;
  throw std::invalid_argument("environment: MUSTER_CONTROLLER is not set; set it to musterd's host:port");
}

}  // namespace agent::rank
