#include "controller/ranks/reports.h"

#include <fcntl.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/util/delimited_message_util.h>

#include <cerrno>
#include <system_error>

namespace ranks {
namespace {

executors::TaskReport::Process process_of(muster::v1::ProcessState state) {
  using Process = executors::TaskReport::Process;
  switch (state) {
    case muster::v1::PROCESS_RUNNING:
      return Process::kRunning;
    case muster::v1::PROCESS_STOPPED:
      return Process::kStopped;
    case muster::v1::PROCESS_EXITED:
      return Process::kExited;
    case muster::v1::PROCESS_STEP_LOST:
      return Process::kStepLost;
    default:
      return {};
  }
}

}  // namespace

store::MetricRow row_of(const core::AttemptKey& key, core::RankNumber rank, const muster::v1::StepMetric& m) {
  store::MetricRow row;
  row.job = key.job;
  row.attempt = key.number;
  row.rank = rank;
  row.step = m.step();
  if (m.has_step_ms()) row.step_ms = m.step_ms();
  if (m.has_memory_bytes()) row.memory_bytes = m.memory_bytes();
  if (m.has_memory_peak_bytes()) row.memory_peak_bytes = m.memory_peak_bytes();
  if (m.has_bytes_communicated()) row.bytes_communicated = m.bytes_communicated();
  for (const auto& value : m.values()) {
    if (spec::is_series_name(value.series())) row.values.push_back({value.series(), value.value()});
  }
  row.at_ms = m.at_ms();
  return row;
}

std::vector<store::DeclaredSeries> declared_of(const core::AttemptKey& key,
                                               const muster::v1::HeartbeatRequest& request) {
  std::vector<store::DeclaredSeries> declared;
  for (const auto& series : request.series()) {
    if (!spec::is_series_name(series.name()) || declared.size() == spec::kMostSeries) continue;
    declared.push_back({key.job,
                        {series.name(), series.unit().size() <= spec::kLongestUnit ? series.unit() : std::string(),
                         spec::better_of(series.better()), spec::over_ranks_of(series.over_ranks())}});
  }
  return declared;
}

agent::protocol::RankUse use_of(const muster::v1::RankUse& use) {
  agent::protocol::RankUse out;
  out.at_ms = use.at_ms();
  if (use.has_cores()) out.cores = use.cores();
  out.memory_bytes = use.memory_bytes();
  out.memory_peak_bytes = use.memory_peak_bytes();
  out.processes = use.processes();
  if (use.has_gpu_percent()) out.gpu_percent = use.gpu_percent();
  if (use.has_gpu_memory_bytes()) out.gpu_memory_bytes = use.gpu_memory_bytes();
  return out;
}

executors::TaskReport report_of(const muster::v1::TaskRequest& request) {
  executors::TaskReport report;
  report.process = process_of(request.state());
  report.node = request.node();
  report.pid = request.pid();
  report.exit = {request.exit_code(), request.signal()};
  report.out_of_memory = request.out_of_memory();
  report.error = request.error();
  report.trouble = request.trouble();
  report.ended_at = core::Millis(request.ended_at_ms());
  report.signals_seen.assign(request.signals_seen().begin(), request.signals_seen().end());
  return report;
}

bool read_unsent(const std::filesystem::path& file,
                 const std::function<bool(const muster::v1::HeartbeatRequest&)>& take) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0 && errno == ENOENT) return true;
  const auto fail = [&](int error) { throw std::system_error(error, std::generic_category(), file.string()); };
  if (fd < 0) fail(errno);
  google::protobuf::io::FileInputStream in(fd);
  in.SetCloseOnDelete(true);
  muster::v1::HeartbeatRequest request;
  while (google::protobuf::util::ParseDelimitedFromZeroCopyStream(&request, &in, nullptr)) {
    if (!take(request)) return false;
    request.Clear();
  }
  if (in.GetErrno() != 0) fail(in.GetErrno());
  return true;
}

}  // namespace ranks
