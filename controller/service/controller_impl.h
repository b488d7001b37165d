#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "controller/common/clock.h"
#include "controller/executors/executor.h"
#include "controller/service/controller.h"
#include "controller/store/store.h"

namespace service {

struct ControllerOptions {
  std::filesystem::path data_folder = {};  // absolute, exists
  std::filesystem::path worker_program = "muster-worker";
  std::string people_token = {};
  std::string version = {};
  /// Jobs run on this machine, so a job file's folders must exist here.
  bool check_folders = false;
  /// Where the policies of Slurm's partitions come from; empty: admins set them by command.
  std::filesystem::path partitions_file = {};
  /// The log of an attempt that was handed to a scheduler, from its folder.
  std::function<std::filesystem::path(const std::filesystem::path&)> scheduler_log = {};
  /// Why there is no Slurm, and what to do about it; empty: there is, or nobody knows.
  std::string why_no_slurm = {};
  /// Problems with musterd's own files, each with its remedy; asked whenever people ask for the status.
  std::function<std::vector<std::string>()> problems = {};
  /// Further facts that admins should know, each with its remedy.
  std::vector<std::string> notes = {};
  /// Where ranks look for musterd, and what is wrong with that address; empty: nothing is known to be.
  std::function<std::pair<std::string, std::string>()> advertised = {};
  /// How long a lost node is left out.
  core::Millis excluded_for = executors::kExcludedFor;
  /// How long metrics are kept in which detail.
  store::MetricsKeep metrics_keep = {};
  /// false: no threads at all. Calls do their work in the caller's thread and everything that is due happens in
  /// tick(): for simulations, where any step may be the last one before a crash.
  bool threads = true;
  core::Millis tick_interval{100};
};

/// Where musterd serves; known only once the servers are bound, which happens after the controller was made.
struct Addresses {
  std::string grpc;       // host:port, given to ranks
  std::string dashboard;  // URL
};

/// A controller with a life: made, start()ed once, stop()ped.
///
/// Threads: one writer (EventLog), one for metrics, one ticker, a few launchers. Destroying it without stop() is what
/// a crash is: nothing more is written, attempts go on, and the next controller on the same store takes over.
class RunningController : public Controller {
 public:
  /// Takes over what an earlier controller left, then follows and acts. Before it, calls of people and ranks are
  /// answered, but nothing is launched.
  virtual void start(const Addresses& addresses) = 0;
  /// The first step of an orderly end. From here on no silence is judged and nothing is launched, held or stopped.
  /// People and ranks are still answered, and what they say is written down. stop() follows.
  virtual void begin_to_leave() = 0;
  /// Writes what is known, stops following. Attempts run on.
  virtual void stop() = 0;
  /// Everything due now, in this thread: only when made without threads. Returns how long nothing is due then, as the
  /// threads would sleep; nullopt: until something happens.
  virtual std::optional<core::Millis> tick() = 0;
};

/// `store`, `executor` and `clock` must outlive the controller. Throws store::Error if the store cannot be read, and
/// std::runtime_error if the partitions file is broken and the store has no policies from before.
std::unique_ptr<RunningController> make_controller(store::Store& store, executors::Executor& executor,
                                                   common::Clock& clock, ControllerOptions options);

}  // namespace service
