#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iostream>

#include "agent/protocol/attempt_folder.h"
#include "agent/protocol/files.h"
#include "base/command.h"
#include "base/fd.h"
#include "base/numbers.h"
#include "base/words.h"
#include "cli/cli_command.h"
#include "cli/cli_text.h"
#include "cli/list.h"
#include "cli/own_musterd.h"
#include "cli/user_service.h"
#include "controller/common/data_folder.h"
#include "controller/core/core_text.h"

namespace cli {
namespace {

namespace fs = std::filesystem;

struct UninstallOptions {
  bool yes = false, keep_data = false, cancel = false, dry_run = false;
};

/// The entries of a data folder that are musterd's, by the first letters of their names. Anything else in the folder is
/// somebody else's and stays: the folder may be one that has other uses.
constexpr const char* kOwnStarts[]{"metrics.db", "musterd.", "muster.db", "ports.json", "known-networks", "disk-probe"};

bool is_own(const std::string& name) {
  return name == "token" || name == "cache" ||
         std::ranges::any_of(kOwnStarts, [&](const char* start) { return name.starts_with(start); });
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    found.push_back(at->path());
  }
  return found;
}

/// The folders of jobs, and of arrays for Slurm.
std::vector<fs::path> jobs_below(const fs::path& data) {
  std::vector<fs::path> found;
  for (const auto& job : entries_of(data / "jobs")) {
    if (base::whole_number<std::int64_t>(job.filename().native())) found.push_back(job);
  }
  for (const auto& set : entries_of(data / "slurm")) {
    if (common::DataFolder::first_job_of_set(set.filename().native())) found.push_back(set);
  }
  return found;
}

std::int64_t bytes_of(const std::vector<fs::path>& paths) {
  std::int64_t bytes = 0;
  for (const auto& path : paths) bytes += common::bytes_below(path);
  return bytes;
}

/// Everything of musterd in its folder; the database comes last, since a folder with one is known as musterd's.
std::vector<fs::path> own_entries(const fs::path& data) {
  std::vector<fs::path> found;
  for (const auto& entry : entries_of(data)) {
    if (is_own(entry.filename().native())) found.push_back(entry);
  }
  const auto is_database = [](const fs::path& path) { return path.filename().native().starts_with("muster.db"); };
  std::ranges::stable_partition(found, [&](const fs::path& path) { return !is_database(path); });
  return found;
}

/// Why jobs of a musterd that does not run may run all the same; empty: none does.
std::string why_jobs_may_run(const fs::path& data) {
  if (!entries_of(data / "slurm").empty()) return "jobs have gone to Slurm, and only musterd can tell whether they run";
  for (const auto& job : jobs_below(data)) {
    for (const auto& attempt : entries_of(job)) {
      if (!attempt.filename().native().starts_with(agent::protocol::kAttemptStart)) continue;
      std::error_code none;
      if (fs::exists(attempt / "slurm.json", none)) {
        return "job " + job.filename().native() + " has gone to Slurm, and only musterd can tell whether it runs";
      }
      const base::Fd lock(::open((attempt / agent::protocol::kLockFile).c_str(), O_RDONLY | O_CLOEXEC));
      if (lock && ::flock(lock.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        return "job " + job.filename().native() + " runs";
      }
    }
  }
  return {};
}

/// The way in which the programs in this folder came there, as the way to remove them.
std::string programs_text(const fs::path& folder) {
  const auto here = folder.native();
  std::error_code none;
  for (auto at = folder; at.has_relative_path(); at = at.parent_path()) {
    if (fs::exists(at / "CMakeCache.txt", none)) return here + ": a build; remove " + at.native() + " for them to go";
    if (fs::exists(at / "pyvenv.cfg", none))
      return here + ": of a Python environment; pip uninstall muster removes them";
  }
  const auto owner = base::ProcessRunner().run({.argv = {"dpkg-query", "--search", (folder / "muster").native()}});
  if (owner.succeeded()) {
    return here + ": of the package " + owner.out.substr(0, owner.out.find(':')) + "; apt remove takes it away";
  }
  return here + ": remove muster, musterd and the programs muster-* there";
}

/// Throws a Failure if jobs of a running musterd have not ended.
void refuse_open_jobs(const fs::path& data) {
  const auto running = settled(data);
  const bool in_slurm =
      running.kind == common::Running::Kind::kElsewhere && running.ready && !running.ready->slurm_job.empty();
  if (running.kind != common::Running::Kind::kHere && !in_slurm) return;
  Client client(config_of(*running.ready));
  client.must_connect();
  const auto open = count_jobs(client, open_states());
  if (open == 0) return;
  throw Failure(kUsage, jobs_text(open, "has", "have") +
                            " not ended: --cancel cancels them first, and --keep-data lets them go on");
}

void show_plan(const fs::path& data, const UserService& service, const fs::path& configuration, bool keeps_data) {
  std::error_code none;
  const auto jobs = jobs_below(data);
  const auto own = own_entries(data);
  if (keeps_data || own.empty()) {
    print_path("stays", data.native() + (own.empty() ? " (no musterd has used it)" : ": jobs, logs and checkpoints"));
  } else {
    print_path("goes", data.native() + ": " + core::count_text(jobs.size(), "job") + " with logs and checkpoints (" +
                           bytes_text(bytes_of(jobs)) + "), database, token and prepared data (" +
                           bytes_text(bytes_of(own)) + ")");
    print_entry("stays", "checkpoint folders elsewhere, which job files have named");
  }
  if (service.is_written()) print_path("goes", service.file().native());
  if (fs::exists(configuration, none)) print_path("goes", configuration.native());
  print_entry("programs", programs_text(base::programs_folder()));
}

/// Removes what is musterd's in the folder, under musterd's own lock, so that none starts meanwhile. Says what is left.
void remove_data(const fs::path& data) {
  const auto lock_file = common::DataFolder(data).lock();
  const base::Fd lock(::open(lock_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock || ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    throw Failure(kUsage, "a musterd uses " + data.native() + " again: say muster uninstall once more");
  }
  for (const auto& path : jobs_below(data)) fs::remove_all(path);
  std::error_code not_empty;
  for (const char* folder : {"jobs", "slurm"}) fs::remove(data / folder, not_empty);
  for (const auto& path : own_entries(data)) fs::remove_all(path);
  fs::remove(data, not_empty);
  if (!not_empty) return;
  std::cerr << "muster: " << data.native() << " stays, since it holds files that are not musterd's\n";
}

int run_uninstall(Session& session, const UninstallOptions& options) {
  const auto data = session.config().data_folder;
  const UserService service(data);
  const auto places = usual_places();
  const auto configuration = fs::path(places.variable("HOME").value_or("/")) / ".config/muster/config.toml";
  show_plan(data, service, configuration, options.keep_data);
  std::cout << std::flush;
  if (options.dry_run) return kSuccess;
  if (!options.yes && !can_ask()) throw Failure(kUsage, "nothing was removed: want --yes where nobody can be asked");
  if (!options.cancel && !options.keep_data) refuse_open_jobs(data);
  if (!options.yes && !person_says_yes("Remove this? It cannot be undone.")) {
    std::cerr << "muster uninstall: nothing was removed\n";
    return kInterrupted;
  }
  const bool ran = end_musterd(data, options.cancel).has_value();
  if (const auto why = ran || options.keep_data ? std::string() : why_jobs_may_run(data); !why.empty()) {
    throw Failure(kUsage, why + ": muster up, and then muster uninstall again");
  }
  if (service.is_written()) service.remove();
  std::error_code none;
  fs::remove(configuration, none);
  fs::remove(configuration.parent_path(), none);  // if nothing else is in it
  if (!options.keep_data && !own_entries(data).empty()) remove_data(data);
  std::cout << "removed\n";
  return kSuccess;
}

}  // namespace

void define_uninstall(CLI::App& app, Session& session) {
  auto options = add_action<UninstallOptions>(app, session, run_uninstall);
  app.add_flag("-y,--yes", options->yes, "Do not ask for confirmation");
  app.add_flag("--keep-data", options->keep_data, "Leave the data folder as it is");
  app.add_flag("--cancel", options->cancel, "Cancel all jobs first; without it jobs that run are a refusal");
  app.add_flag("--dry-run", options->dry_run, "Only show what would be removed");
}

}  // namespace cli
