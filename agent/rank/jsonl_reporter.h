#pragma once

#include <string>
#include <vector>

#include "agent/rank/reporter.h"

namespace agent::rank {

/// Reports into a file, one JSON object a line, each written with one call so that a reader never sees half a line of a
/// living process. It is a report file as any program may write one (docs/report.md). The file is appended to, so a
/// resumed run's lines follow those of the run before. Losing the file's disk costs a warning, not the training.
///
/// The line of a step:
///   {"step":30,"loss":2.3,"validation/loss":2.4,...,"step_ms":8.1,"memory_bytes":...,"memory_peak_bytes":...,
///    "bytes_communicated":...,"at_ms":...}
/// Each value stands under its series' name, in the order of the report; a value that is no number is null. All six
/// other keys are there in every line and keep their meaning. A series whose name is a key of the contract, or stands
/// in the line already, gets "series/" before its name: "series/step". Every rank writes all that it reports, since
/// each has a file of its own.
class JsonlReporter : public Reporter {
 public:
  /// Opens (creates, appends to) `path`. `master` is the fixed rendezvous address, absent for a single process. Throws
  /// std::runtime_error that names the path.
  JsonlReporter(const std::string& path, std::optional<Endpoint> master);
  ~JsonlReporter() override;
  JsonlReporter(const JsonlReporter&) = delete;
  JsonlReporter& operator=(const JsonlReporter&) = delete;

  void section(Section now) override;
  void declare(std::vector<spec::Series> series) override;
  void step(const StepReport& report) override;
  void resumed_from(std::int64_t step) override;
  void checkpoint_saved(std::int64_t step, std::int64_t bytes, double ms) override;
  StopKind stop_requested() const override { return StopKind::kNone; }
  bool assigns_rendezvous() const override { return false; }
  Endpoint rendezvous(std::optional<Endpoint> mine) override;
  void leaving(int exit_code, std::string_view reason) override;

 private:
  void write_line(const std::string& fields);
  /// Writes a line of `fields` and the time.
  void write_fact(const std::string& fields);

  std::string path_;
  std::optional<Endpoint> master_;
  int fd_ = -1;
  bool warned_ = false;
};

/// "init", "data", "step", "checkpoint", "done" or "evaluate".
std::string_view to_string(Section section);

/// Unix time in milliseconds.
std::int64_t now_ms();

}  // namespace agent::rank
