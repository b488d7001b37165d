#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "controller/admission/admission.h"
#include "controller/common/clock.h"
#include "controller/common/data_folder.h"
#include "controller/executors/executor.h"
#include "controller/jobs/event_log.h"
#include "controller/jobs/specs.h"
#include "controller/partitions/partitions.h"
#include "controller/store/store.h"
#include "muster/v1/job.pb.h"

namespace actions {

/// Settings that all launches of this controller have in common.
struct LaunchSettings {
  common::DataFolder data{""};
  std::filesystem::path worker_program;
  std::string controller_address;  // host:port, for ranks
  std::string secret;              // of the store: rank tokens derive from it
};

/// The file that muster-worker reads, format 1: name, recipe, model, data, train, checkpoint, fsdp; values that the
/// spec leaves out are left out, but for the folders.
nlohmann::ordered_json run_file(const muster::v1::JobSpec& spec, core::JobId job, const common::DataFolder& data);

executors::SlurmWishes slurm_wishes(const muster::v1::JobSpec& spec);

/// Pure: what a job asks for, for Executor::unfit(): executor, resources, the scheduler's wishes and the user's own
/// variables. A sweep asks for it ten thousand times.
executors::LaunchRequest asked_request(const muster::v1::JobSpec& spec);

/// Pure: the same for the same attempt, however often it is asked for.
executors::LaunchRequest launch_request(const muster::v1::JobSpec& spec, const core::AttemptKey& key,
                                        const LaunchSettings& settings);

/// The store's outbox, and how far each of its actions is. RemoveFiles is left out (see JobRemover). Thread-safe; the
/// store is never asked under the lock.
class Outbox {
 public:
  using Row = store::PendingAction;
  using Ids = std::vector<std::int64_t>;
  static bool is_start(const Row& row) { return std::holds_alternative<core::StartAttempt>(row.action); }
  static bool is_hold(const Row& row) { return std::holds_alternative<core::HoldAttempt>(row.action); }

  Outbox(store::Store& store, common::Clock& clock) : store_(store), clock_(clock) {}

  /// Takes in what the store has by now, and returns the rows that are new. Once one start of a job is launching, all
  /// its starts are. Throws store::Error.
  std::vector<Row> read();
  /// Every row, oldest first.
  std::vector<Row> rows() const;
  /// Those that nobody works on and whose pause is over, oldest first. Of a job's holds and releases the newest alone:
  /// it decides.
  std::vector<Row> ready() const;

  /// Somebody works on the row from now on, until end(). Its state becomes that of this moment. False: somebody works
  /// on another start of the same job already.
  bool begin(Row& row);
  void end(const Row& row);
  /// An executor is asked next: durable when it returns, with what the attempts were given. Throws store::Error; then
  /// nothing is.
  void set_launching(const std::vector<store::LaunchingAction>& rows);
  /// It was asked, and surely has nothing of it. False: the store did not take that, so they stay as they are.
  bool set_pending(Ids ids);
  /// Completes actions whose results are durable. One that the store does not take now is not repeated in this run.
  void complete(const Ids& ids);
  /// Completes a hold or release with all it has overtaken, in one transaction. False: the store does not take it now.
  bool complete_hold(const Row& row);
  /// Completes what the store has not taken before.
  void complete_rest();
  void pause(const Row& row, core::Millis pause);
  /// The first moment (monotonic) after `since` at which time alone makes a row ready, or lets complete_rest() try
  /// again; nullopt: nothing waits for time.
  std::optional<core::Millis> next_ready(core::Millis since) const;

 private:
  struct Entry {
    Row row;
    bool under_way = false;
    core::Millis not_before{0};  // monotonic
  };
  bool is_busy(const Row& row) const;
  Entry* find(std::int64_t id);
  /// Forgets them once the store has. False: it does not take that now.
  bool tick_off(const Ids& ids, const std::string& what);
  void spread_launching();

  store::Store& store_;
  common::Clock& clock_;
  mutable std::mutex mutex_;
  std::map<std::int64_t, Entry> rows_;
  std::set<core::JobId> starting_;
  std::set<std::int64_t> to_complete_;  // carried out, but the store did not take that
};

/// Launches attempts that may start: from their rows in the outbox to what executors answer.
///
/// A row is `launching`, durably, before an executor is asked. It is done when the answer is durable, and pending again
/// when there is surely no attempt. While it is launching the attempt may be there, so its job keeps its slots and its
/// share of the machine, and where the job is not to start any more its executor is asked whether there is something to
/// follow or to stop. The row says what the attempt is given before the executor is asked, so a share is known after
/// any crash.
class Launches {
 public:
  struct Parts {
    store::Store& store;
    executors::Executor& executor;
    common::Clock& clock;
    jobs::EventLog& event_log;
    jobs::SpecCache& specs;
    admission::Admission& admission;
    partitions::Partitions& partitions;
    core::Millis excluded_for = executors::kExcludedFor;
    /// After which step the ranks of an attempt leave that are asked to save; see controller/ranks/live_ranks.h.
    std::function<std::optional<core::Step>(const core::AttemptKey&, core::Millis interval)> leave_step = {};
  };
  Launches(Outbox& outbox, Parts parts) : outbox_(outbox), parts_(parts) {}

  void start(LaunchSettings settings) { settings_ = std::move(settings); }
  /// Starts whose jobs have their slots, or that have nothing to start any more. Of several all are first attempts of
  /// one sweep, for one executor. Never throws.
  void perform(const std::vector<Outbox::Row>& batch);
  /// Adds to each request the nodes that were lost lately, as before every launch.
  void leave_out_lost_nodes(std::vector<executors::LaunchRequest>& requests) const;
  executors::LostNodes nodes_lost_lately() const;

 private:
  /// A start, and what comes of it.
  struct Launch {
    Outbox::Row row;
    core::AttemptKey key;
    std::optional<executors::LaunchRequest> request;  // what an executor is to be asked
    std::optional<executors::LaunchAnswer> answer;    // with neither, nothing is to be done any more
    std::optional<executors::LaunchLater> later;      // when to try again; nullopt: it is over
    bool may_be_there() const { return row.state == store::ActionState::kLaunching; }
  };
  /// Finds out what to ask, or what the answer is without that.
  void prepare(Launch& launch);
  /// Finds out what to ask, or why that can't be.
  void plan(const core::Job& job, Launch& launch);
  /// The open job that owns the checkpoint folder of another job; nullopt: there is none.
  std::optional<core::JobId> owner_of_folder(const muster::v1::JobSpec& spec, core::JobId job) const;
  /// Finds what there is of a launch that may have happened and is not to happen any more; nullopt: surely nothing.
  std::optional<executors::LaunchAnswer> look(const core::AttemptKey& key);
  /// True if the attempt must not run and was stopped.
  bool was_stopped(const core::AttemptKey& key) const;
  /// True if something of such a stopped attempt is still there.
  bool is_left(const core::AttemptKey& key);
  void ask(std::vector<Launch>& launches);
  /// Keeps what executors answered.
  void keep(std::vector<Launch>& launches);
  /// Stops an attempt that must not run. True: something of it may still be there, so what it was given is not free.
  bool stop_unwanted(const core::AttemptKey& key);
  void finish(const std::vector<Launch>& launches);

  Outbox& outbox_;
  const Parts parts_;
  LaunchSettings settings_;
  mutable std::mutex mutex_;
  std::set<core::AttemptKey> stopping_;  // attempts that must not run, were stopped, and are still there
};

}  // namespace actions
