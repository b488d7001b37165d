#include "agent/report/teller.h"

#include "agent/rank/jsonl_reporter.h"

namespace agent::report {
namespace {

/// nullopt: it is a name of the program's own.
std::optional<rank::Section> section_of(const std::string& name) {
  if (name == "init") return rank::Section::kInit;
  if (name == "data") return rank::Section::kData;
  if (name == "step") return rank::Section::kStep;
  if (name == "checkpoint") return rank::Section::kCheckpoint;
  if (name == "end") return rank::Section::kDone;
  return std::nullopt;
}

}  // namespace

void Teller::tell(const watch::Report& report, rank::Reporter& to) {
  if (!report.series.empty()) declare(report.series, to);
  if (report.resumed) to.resumed_from(*report.resumed);
  if (report.section) enter(*report.section, to);
  if (report.status) words_.status = *report.status;
  if (report.total_steps) words_.total_steps = *report.total_steps;
  if (report.config) words_.config = *report.config;
  if (report.step) step(report, to);
  if (report.checkpoint) {
    const auto& saved = *report.checkpoint;
    to.checkpoint_saved_at(saved.path, saved.step, saved.bytes.value_or(-1), saved.took_ms.value_or(0));
  }
  if (report.error) words_.error = {report.error->type, report.error->message, report.error->trace};
}

void Teller::declare(const std::vector<spec::Series>& series, rank::Reporter& to) {
  for (const auto& one : series) {
    std::erase_if(series_, [&](const auto& other) { return other.name == one.name; });
    series_.push_back(one);
  }
  to.declare(series_);
}

void Teller::step(const watch::Report& report, rank::Reporter& to) {
  words_.error.reset();  // the program went on after it
  const auto& step = *report.step;
  rank::StepReport out;
  out.step = step.step;
  for (const auto& [name, value] : step.values) out.values.push_back({name, value});
  out.at_ms = report.at_ms.value_or(rank::now_ms());
  out.step_ms = step.step_ms.value_or(step_ms_since_last(step.step, out.at_ms));
  const bool is_new = !last_step_ || step.step > last_step_->first;
  last_step_ = {step.step, out.at_ms};
  out.memory_bytes = step.memory_bytes.value_or(0);
  out.memory_peak_bytes = step.memory_peak_bytes.value_or(0);
  out.bytes_communicated = step.bytes_communicated.value_or(-1);
  to.step(out);
  // After the end a program may tell more of its last step, or train once more.
  if (section_ == rank::Section::kInit || (section_ == rank::Section::kDone && is_new)) {
    enter(rank::Section::kStep, to);
  }
}

void Teller::enter(rank::Section section, rank::Reporter& to) {
  words_.section.clear();
  if (std::exchange(section_, section) != section) to.section(section);
}

// A controller that does not know such names takes it for a step.
void Teller::enter(const std::string& name, rank::Reporter& to) {
  if (const auto known = section_of(name)) return enter(*known, to);
  enter(rank::Section::kStep, to);
  words_.section = name;
}

/// 0: not known.
double Teller::step_ms_since_last(std::int64_t step, std::int64_t at_ms) const {
  if (!last_step_ || step <= last_step_->first || at_ms < last_step_->second) return 0;
  return static_cast<double>(at_ms - last_step_->second) / static_cast<double>(step - last_step_->first);
}

}  // namespace agent::report
