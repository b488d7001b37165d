#include "train/step_trace.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <system_error>

namespace worker {
namespace {

/// An empty text, or why the file was not written.
std::string write_text(const std::filesystem::path& file, const std::string& text) {
  std::error_code error;
  std::filesystem::create_directories(file.parent_path(), error);
  if (error) return error.message();
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << text << std::flush;
  return out ? "" : std::strerror(errno);
}

}  // namespace

StepTrace::StepTrace(const RunConfig& config, std::int64_t step, fsdp::DeviceMesh& mesh)
    : config_(config), step_(step), mesh_(mesh), name_(std::to_string(step)) {
  const std::int64_t first = config.train.trace_step;
  records_ = first > 0 && step >= first && step - first < config.train.trace_steps;
  if (!records_) return;
  mesh.tracer()->begin(mesh.device());
  whole_.emplace(mesh.tracer().get(), "step", name_);
}

StepTrace::~StepTrace() {
  whole_.reset();
  if (records_) mesh_.tracer()->end(mesh_.rank());
}

void StepTrace::write() {
  if (!records_) return;
  whole_.reset();
  records_ = false;
  const std::filesystem::path path = file(config_, step_, mesh_.rank());
  const std::string why = write_text(path, mesh_.tracer()->end(mesh_.rank()));
  if (!why.empty())
    std::fprintf(stderr, "[rank %d] warning: no trace in %s: %s\n", mesh_.rank(), path.c_str(), why.c_str());
}

std::filesystem::path StepTrace::file(const RunConfig& config, std::int64_t step, int rank) {
  return std::filesystem::path(config.checkpoint.folder) / "trace" /
         ("step-" + std::to_string(step) + ".rank" + std::to_string(rank) + ".json");
}

}  // namespace worker
