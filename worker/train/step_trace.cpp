#include "worker/train/step_trace.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <system_error>
#include <utility>

#include "agent/protocol/files.h"

namespace worker {
namespace {

/// An empty text, or why the file was not written. A part of the file does not stay.
std::string write_text(const std::filesystem::path& file, const std::string& text) {
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  if (error) return error.message();
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  if (!out) return std::strerror(errno);
  out << text << std::flush;
  if (out) return "";
  const std::string why = std::strerror(errno);
  out.close();
  std::filesystem::remove(file, error);
  return why;
}

std::string steps_text(std::int64_t count) {
  return std::to_string(count) + (count == 1 ? " step" : " steps");
}

}  // namespace

StepTrace::StepTrace(const RunConfig& config, std::int64_t step, fsdp::DeviceMesh& mesh, bool is_requested)
    : config_(config), step_(step), mesh_(mesh), name_(std::to_string(step)) {
  const std::int64_t first = config.train.trace_step;
  records_ = is_requested || (first > 0 && step >= first && step - first < config.train.trace_steps);
  if (!records_) return;
  mesh.tracer()->begin(mesh.device());
  whole_.emplace(mesh.tracer().get(), "step", name_);
}

StepTrace::~StepTrace() {
  whole_.reset();
  if (records_) mesh_.tracer()->end(mesh_.rank());
}

std::optional<WrittenTrace> StepTrace::write() {
  if (!records_) return std::nullopt;
  whole_.reset();
  records_ = false;
  const std::filesystem::path path = file(config_, step_, mesh_.rank());
  std::string why = write_text(path, mesh_.tracer()->end(mesh_.rank()));
  if (!why.empty())
    std::fprintf(stderr, "[rank %d] warning: no trace in %s: %s\n", mesh_.rank(), path.c_str(), why.c_str());
  return WrittenTrace{path, std::move(why)};
}

std::filesystem::path StepTrace::file(const RunConfig& config, std::int64_t step, int rank) {
  return std::filesystem::path(config.checkpoint.folder) / agent::protocol::kTraceFolder /
         agent::protocol::trace_file_name(step, rank);
}

agent::rank::TraceWish TraceRequests::wish() const {
  if (now_) return {};
  const auto wish = reporter_.trace_requested();
  return wish && !is_known(wish->number) ? *wish : agent::rank::TraceWish{};
}

void TraceRequests::agreed(std::int64_t step, const agent::rank::TraceWish& wish) {
  if (wish.number == 0 || now_) return;
  known_.push_back(wish.number);
  if (known_.size() > kRemembered) known_.pop_front();
  const std::int64_t next = step + 1;
  now_ =
      agent::rank::TraceReport{.number = wish.number, .first = wish.first > 0 ? wish.first : next, .steps = wish.steps};
  if (now_->first > last_step_) {
    now_->problem = "the training ends after step " + std::to_string(last_step_);
    now_->over = true;
  } else if (now_->first < next) {
    now_->problem = "step " + std::to_string(now_->first) + " had begun when the ranks heard of the request, in step " +
                    std::to_string(step) + "; ask for a later step, or for none";
    now_->over = true;
  }
  tell();
}

bool TraceRequests::records(std::int64_t step) const {
  return now_ && step >= now_->first && step - now_->first < now_->steps;
}

void TraceRequests::wrote(std::int64_t step, const WrittenTrace& written) {
  if (!records(step)) return;
  if (written.problem.empty()) {
    now_->steps_written.push_back(step);
  } else if (now_->problem.empty()) {
    now_->problem = "no trace in " + written.file.native() + ": " + written.problem;
  }
  const std::int64_t left = now_->first + now_->steps - 1 - step;
  now_->over = left == 0 || step == last_step_;
  if (left > 0 && now_->over && now_->problem.empty()) {
    now_->problem = "the training ended with step " + std::to_string(step) + ", " + steps_text(left) + " too early";
  }
  tell();
}

bool TraceRequests::is_known(std::uint64_t number) const {
  return std::ranges::find(known_, number) != known_.end();
}

void TraceRequests::tell() {
  reporter_.trace(*now_);
  if (!now_->over) return;
  const auto& done = *now_;
  std::printf("[rank %d] recorded %zu of %s, from step %lld on, as asked%s%s\n", rank_, done.steps_written.size(),
              steps_text(done.steps).c_str(), static_cast<long long>(done.first), done.problem.empty() ? "" : ": ",
              done.problem.c_str());
  std::fflush(stdout);
  now_.reset();
}

}  // namespace worker
