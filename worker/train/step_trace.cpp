#include "worker/train/step_trace.h"

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

}  // namespace worker
