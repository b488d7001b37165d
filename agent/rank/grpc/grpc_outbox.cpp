#include "agent/rank/grpc/grpc_outbox.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "agent/rank/jsonl_reporter.h"
#include "base/numbers.h"
#include "base/words.h"

namespace agent::rank {
namespace {

void write(const StepReport& from, muster::v1::StepMetric& to) {
  to.set_step(from.step);
  if (from.step_ms > 0) to.set_step_ms(from.step_ms);
  if (from.memory_bytes > 0) to.set_memory_bytes(from.memory_bytes);
  if (from.memory_peak_bytes > 0) to.set_memory_peak_bytes(from.memory_peak_bytes);
  if (from.bytes_communicated >= 0) to.set_bytes_communicated(from.bytes_communicated);
  to.set_at_ms(from.at_ms);
  for (const auto& value : from.values) {
    auto& told = *to.add_values();
    told.set_series(value.series);
    told.set_value(value.value);
  }
}

void write(const spec::Series& from, muster::v1::Series& to) {
  to.set_name(from.name);
  to.set_unit(from.unit);
  to.set_better(std::string(to_string(from.better)));
  to.set_over_ranks(std::string(to_string(from.over_ranks)));
}

}  // namespace

std::size_t GrpcOutbox::bytes_of(const StepReport& step) {
  std::size_t bytes = sizeof step;
  for (const auto& value : step.values) bytes += sizeof value + value.series.size();
  return bytes;
}

bool GrpcOutbox::is_told(const spec::Series& series) const {
  return rank_ == 0 || series.over_ranks != spec::OverRanks::kRank0;
}

bool GrpcOutbox::is_told(const std::string& series) const {
  const auto known = std::ranges::find(series_, series, &spec::Series::name);
  return known == series_.end() || is_told(*known);
}

void GrpcOutbox::declare(std::vector<spec::Series> series) {
  series_ = std::move(series);
}

void GrpcOutbox::add(const StepReport& step) {
  StepReport told = step;
  std::erase_if(told.values, [&](const SeriesValue& value) { return !is_told(value.series); });
  if (told.values.size() > spec::kMostSeries) told.values.resize(spec::kMostSeries);
  told.values.shrink_to_fit();
  bytes_ += bytes_of(told);
  steps_.push_back(std::move(told));
  while (steps_.size() > kMaxSteps || (bytes_ > kMaxBytes && steps_.size() > 1)) {
    drop_steps_below(first_step_ + 1);
    ++lost_;
  }
}

void GrpcOutbox::add(const muster::v1::CheckpointSaved& checkpoint) {
  checkpoints_.push_back(checkpoint);
  if (checkpoints_.size() <= kMaxCheckpoints) return;
  checkpoints_.pop_front();
  ++first_checkpoint_;
}

GrpcOutbox::Batch GrpcOutbox::fill(muster::v1::HeartbeatRequest& request, std::uint64_t from_step,
                                   std::uint64_t from_checkpoint) const {
  const auto skipped_steps = std::min<std::size_t>(steps_.size(), std::max(from_step, first_step_) - first_step_);
  const auto skipped_checkpoints =
      std::min<std::size_t>(checkpoints_.size(), std::max(from_checkpoint, first_checkpoint_) - first_checkpoint_);
  Batch batch;
  batch.first_step = first_step_ + skipped_steps;
  batch.first_checkpoint = first_checkpoint_ + skipped_checkpoints;
  batch.checkpoints = std::min(checkpoints_.size() - skipped_checkpoints, kBatch);
  std::size_t bytes = 0;
  for (auto at = skipped_steps; at < steps_.size() && batch.steps < kBatch; ++at) {
    bytes += bytes_of(steps_[at]);
    if (batch.steps > 0 && bytes > kBatchBytes) {
      batch.full = true;
      break;
    }
    write(steps_[at], *request.add_metrics());
    ++batch.steps;
  }
  batch.full = batch.full || batch.steps == kBatch || batch.checkpoints == kBatch;
  for (std::size_t i = 0; i < batch.checkpoints; ++i) {
    *request.add_checkpoints() = checkpoints_[skipped_checkpoints + i];
  }
  for (const auto& series : series_) {
    if (batch.steps > 0 && is_told(series)) write(series, *request.add_series());
  }
  return batch;
}

void GrpcOutbox::drop_steps_below(std::uint64_t until) {
  while (!steps_.empty() && first_step_ < until) {
    bytes_ -= bytes_of(steps_.front());
    steps_.pop_front();
    ++first_step_;
  }
}

void GrpcOutbox::acknowledge(const Batch& batch, std::size_t steps, std::size_t checkpoints) {
  acknowledge_until(batch.first_step + std::min(steps, batch.steps),
                    batch.first_checkpoint + std::min(checkpoints, batch.checkpoints));
}

void GrpcOutbox::acknowledge_until(std::uint64_t step, std::uint64_t checkpoint) {
  drop_steps_below(step);
  while (!checkpoints_.empty() && first_checkpoint_ < checkpoint) {
    checkpoints_.pop_front();
    ++first_checkpoint_;
  }
}

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

void write(const RankNews& news, v1::HeartbeatRequest& to) {
  to.set_step(news.step);
  to.set_step_ms(news.step_ms);
  to.set_section(wire(news.section));
  to.set_section_name(fit(news.words.section, kMaxStatus));
  // The wire has no word of its own for an evaluation.
  if (news.words.section.empty() && news.section == Section::kEvaluate) to.set_section_name("evaluate");
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
  const auto job = base::whole_number<std::int64_t>(environment.job_id).value_or(0);
  if (job <= 0) {
    throw std::invalid_argument("environment: MUSTER_JOB_ID=\"" + environment.job_id +
                                "\" is not a job's number; unset MUSTER_CONTROLLER to run without a controller");
  }
  if (environment.attempt <= 0) {
    throw std::invalid_argument(
        "environment: MUSTER_ATTEMPT is not set; unset MUSTER_CONTROLLER to run without a controller");
  }
  v1::RankKey key;
  key.set_job_id(job);
  key.set_attempt(static_cast<std::uint32_t>(environment.attempt));
  key.set_rank(static_cast<std::uint32_t>(environment.rank));
  return key;
}

ControllerPlace controller_of(const RankEnvironment& environment) {
  if (environment.controller) return {*environment.controller, environment.controller_file};
  throw std::invalid_argument("environment: MUSTER_CONTROLLER is not set; set it to musterd's host:port");
}

}  // namespace agent::rank
