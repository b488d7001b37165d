#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "agent/rank/meeting.h"
#include "spec/series.h"

namespace agent::rank {

struct RankEnvironment;

/// One number of one series at one step.
struct SeriesValue {
  std::string series;  ///< its name, as declared: "validation/loss"
  double value = 0;
};

/// The facts of one finished optimizer step: the values of its series, and what this rank measured of itself.
struct StepReport {
  std::int64_t step = 0;  ///< steps finished so far, from 1
  std::vector<SeriesValue> values = {};
  double step_ms = 0;                   ///< 0: not known
  std::int64_t memory_bytes = 0;        ///< resident memory now; 0: not known
  std::int64_t memory_peak_bytes = 0;   ///< highest resident memory of this process; 0: not known
  std::int64_t bytes_communicated = 0;  ///< put on the wire by this rank in this step; negative: not known
  std::int64_t at_ms = 0;               ///< Unix time
};

/// The work that the rank is busy with; hang limits differ by section.
enum class Section { kInit, kData, kStep, kCheckpoint, kDone, kEvaluate };

/// Facts that a program tells of itself, besides its steps: the newest of each.
struct ProgramWords {
  struct Error {
    std::string type, message, trace;
    bool operator==(const Error&) const = default;
  };
  std::string section;           ///< the name of a section that is none of Section; empty: none
  std::string status;            ///< what it does, in a few words; empty: not told
  std::int64_t total_steps = 0;  ///< 0: not told
  std::string config;            ///< a JSON object; empty: not told
  std::optional<Error> error;    ///< why it ends
  std::uint64_t bad_lines = 0;   ///< lines of its report file that could not be read, or only in part
  std::string first_bad_line;    ///< what was wrong with the first of them
  std::string source_trouble;    ///< what was wrong first with a source that [report] names; empty: nothing
  std::string note;              ///< what people should know of this attempt of a recipe; empty: nothing
  bool blind = false;            ///< its report file cannot be read now
  bool operator==(const ProgramWords&) const = default;
};

/// Which steps the ranks are asked to record; see TraceWish in proto/muster/v1/rank_service.proto.
struct TraceWish {
  std::uint64_t number = 0;  ///< from 1 to protocol::kMostTraceNumber; 0: nothing is asked
  std::int64_t first = 0;    ///< the first step, from 1; 0: the next step that all ranks can record
  std::int64_t steps = 1;
  bool operator==(const TraceWish&) const = default;
};

/// The report of a rank on the newest trace that the ranks agreed on.
struct TraceReport {
  std::uint64_t number = 0;  ///< 0: none yet
  std::int64_t first = 0;    ///< equal on all ranks
  std::int64_t steps = 0;    ///< as asked for
  std::vector<std::int64_t> steps_written = {};
  std::string problem = {};  ///< what went wrong first, with the remedy; empty: nothing
  bool over = false;
};

/// Reports that a reporter has been told and the controller has not acknowledged.
struct Backlog {
  bool is_full = false;  ///< one more step or checkpoint costs the oldest
  bool is_long = false;  ///< more than one heartbeat carries
  std::size_t reports = 0;
};

/// The stop that the rank has been asked for. Ordered: a later one wins over an earlier one.
enum class StopKind {
  kNone,
  kSave,  ///< finish the step, save, leave with the requeue code
  kNow,   ///< leave at the next step boundary without writing anything: another attempt owns the job
};

/// The one interface where agent/rank/ (environment, controller) and worker/train/ (LibTorch) meet: plain types only.
///
/// Calls come from the training thread, never from a signal handler. None may block training on the network but
/// `rendezvous` and the destructor (both bounded); none but `rendezvous` throws.
class Reporter {
 public:
  virtual ~Reporter() = default;

  /// Says what the rank does from now on.
  virtual void section(Section now) = 0;

  /// Tells what is known of the series in the reports. Called before the first report; a later call replaces the
  /// former. Values of a series that is not declared are reported all the same.
  virtual void declare(std::vector<spec::Series> series) = 0;

  /// One finished step, every rank reports its own. A report that can't be delivered now is kept and sent later. The
  /// controller gets the values of a series that is rank 0's from rank 0 alone; each rank may report them all the same.
  virtual void step(const StepReport& report) = 0;

  /// Training goes on from a checkpoint taken after `step` steps, or begins (0); the next report has number step + 1.
  virtual void resumed_from(std::int64_t step) = 0;

  /// Puts what the controller has not acknowledged yet on disk, so that a kill from now on loses none of it. Called
  /// before a checkpoint is written: the next attempt goes on behind the checkpoint's step, and repeats no step that
  /// would be lost. Waits for the disk a moment; one that stands still costs only this.
  virtual void keep() {}

  /// The checkpoint of `step` is complete and valid on disk; `bytes` is what this rank wrote.
  virtual void checkpoint_saved(std::int64_t step, std::int64_t bytes, double ms) = 0;

  /// Reports a checkpoint of a program of its own in the same way, with its place. Negative `bytes`: not known.
  virtual void checkpoint_saved_at(const std::string& /*path*/, std::int64_t step, std::int64_t bytes, double ms) {
    checkpoint_saved(step, bytes, ms);
  }

  /// Tells what a program of its own says of itself; each call replaces the former. muster-worker says nothing here.
  virtual void program(const ProgramWords& /*words*/) {}

  /// For whoever reads reports from a file, which can wait there until the controller has taken those before. A
  /// training does not wait, and does not ask.
  virtual Backlog backlog() const { return {}; }

  /// The stop the controller asks for. Signals are not included: see agent/rank/signals.h. Cheap; asked at every step.
  virtual StopKind stop_requested() const = 0;

  /// The newest trace that the controller asks for; nullopt: none. One that was recorded may be asked for again. Cheap;
  /// asked at every step.
  virtual std::optional<TraceWish> trace_requested() const { return std::nullopt; }

  /// How the newest trace stands; each call replaces the former.
  virtual void trace(const TraceReport& /*report*/) {}

  /// True when `rendezvous` hands rank 0's address to the other ranks, so that rank 0 may bind any free port; false
  /// when the address is fixed from outside (MASTER_ADDR, MASTER_PORT) and rank 0 must bind that.
  virtual bool assigns_rendezvous() const = 0;

  /// Where the ranks meet. Rank 0 passes the address it listens on, the others nothing; all get the same answer.
  /// Blocks until it is known; throws std::runtime_error, naming the remedy, when that takes too long or can't be.
  virtual Endpoint rendezvous(std::optional<Endpoint> mine) = 0;

  /// The last call: this rank exits with `exit_code` for `reason`.
  virtual void leaving(int exit_code, std::string_view reason) = 0;
};

/// The reporter that fits the environment: gRPC to the controller when MUSTER_CONTROLLER is set and this build has gRPC
/// (MUSTER_WITH_GRPC), else JSON lines into a file. Throws std::runtime_error when neither can be opened.
std::unique_ptr<Reporter> make_reporter(const RankEnvironment& environment);

/// A newer attempt owns the job's checkpoint folder (spec::kExitFenced).
class FencedError : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace agent::rank
