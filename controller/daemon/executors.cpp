#include "daemon/executors.h"

#include <pwd.h>
#include <unistd.h>

#include <cstring>

#include "base/tokens.h"
#include "daemon/environment.h"
#include "daemon/slurm_detection.h"
#include "daemon/usage_error.h"
#include "executors/slurm/slurm_attempt.h"
#include "executors/slurm/submission.h"

namespace musterd {
namespace {

namespace fs = std::filesystem;

std::string own_user() {
  const passwd* entry = ::getpwuid(::geteuid());
  return entry == nullptr ? std::to_string(::geteuid()) : entry->pw_name;
}

slurm::ClientOptions client_options() {
  slurm::ClientOptions options;
  options.conf = environment("SLURM_CONF");
  // An attempt waits this long for accounting. A listing waits with it.
  options.history_limit = executors::on_slurm::SlurmAttempt::kHistoryPatience;
  return options;
}

executors::local::LocalOptions local_options(const ExecutorSettings& settings, const fs::path& supervisor) {
  executors::local::LocalOptions options;
  options.root = settings.data;
  options.supervisor_program = supervisor;
  options.open_files = settings.open_files;
  return options;
}

bool can_run(const fs::path& file) {
  return ::access(file.c_str(), X_OK) == 0 && !fs::is_directory(file);
}

/// `name`: "muster-supervisor" or "muster-task".
std::string missing(const fs::path& file, const std::string& name) {
  return file.string() + " is missing or cannot be run; install " + name +
         " beside musterd (./dev build makes all programs), or name it with --" + name.substr(std::strlen("muster-"));
}

}  // namespace

fs::path program(const std::string& given, const std::string& name) {
  if (!given.empty()) {
    if (!can_run(given)) {
      throw UsageError("--" + name.substr(std::strlen("muster-")) + " " + given +
                       ": the file is missing or cannot be run; without this flag musterd uses the " + name +
                       " beside it");
    }
    return fs::absolute(given);
  }
  return fs::read_symlink("/proc/self/exe").parent_path() / name;
}

Executors::Executors(const ExecutorSettings& settings, base::Clock& clock)
    : supervisor_(program(settings.supervisor, "muster-supervisor")),
      task_(program(settings.task, "muster-task")),
      local_(executors::local::make_local_executor(local_options(settings, supervisor_))),
      runner_(true, settings.open_files) {
  why_no_slurm_ = musterd::why_no_slurm(settings.slurm, runner_);
  // Without muster-task every attempt on Slurm would fail, until the job's budget is spent.
  task_is_missing_ = why_no_slurm_.empty() && !can_run(task_);
  if (task_is_missing_) why_no_slurm_ = missing(task_, "muster-task") + ", and start musterd again";
  if (settings.slurm == "yes" && !why_no_slurm_.empty()) throw UsageError("--slurm yes: " + why_no_slurm_);
  if (!why_no_slurm_.empty()) return;
  client_ = std::make_unique<slurm::Client>(runner_, client_options());
  slurm_ = executors::on_slurm::make_slurm_executor(
      *client_, clock,
      // muster-task needs the same libraries as musterd.
      executors::on_slurm::SlurmOptions{settings.data, task_, environment("LD_LIBRARY_PATH"),
                                        base::store_name(settings.secret), own_user(), settings.slurm_poll});
  both_ = executors::make_routing_executor(*local_, *slurm_);
}

std::vector<std::string> Executors::problems() const {
  std::vector<std::string> all;
  if (!can_run(supervisor_))
    all.push_back("no job can run on this machine: " + missing(supervisor_, "muster-supervisor"));
  if (task_is_missing_) all.push_back("no job can go to Slurm: " + why_no_slurm_);
  if (slurm_ && !can_run(task_)) all.push_back("no job can run on Slurm: " + missing(task_, "muster-task"));
  return all;
}

}  // namespace musterd
