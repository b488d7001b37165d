#include "controller/musterd/backup.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/command.h"
#include "base/durable_file.h"
#include "base/host_name.h"
#include "base/usage_error.h"
#include "controller/common/clock.h"
#include "controller/common/data_folder.h"
#include "controller/common/ready_file.h"
#include "controller/common/tokens.h"
#include "controller/core/core_text.h"
#include "controller/executors/slurm/launcher.h"
#include "controller/musterd/executors.h"
#include "controller/store/sqlite_backup.h"
#include "controller/store/sqlite_pair.h"
#include "controller/store/sqlite_store.h"
#include "slurm/slurm_client.h"

namespace musterd {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string size_text(std::uintmax_t bytes) {
  constexpr double kMega = 1e6;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f MB", static_cast<double>(bytes) / kMega);
  return text.data();
}

std::string content_text(const store::BackupFacts& facts) {
  return core::count_text(static_cast<std::size_t>(facts.jobs), "job") + ", " + std::to_string(facts.open_jobs) +
         " of them not ended; schema " + std::to_string(facts.schema) + "; " + size_text(facts.bytes);
}

/// SQLite's log files join a database only for processes of one machine.
void refuse_other_hosts(const common::Running& running, const std::string& command) {
  if (running.kind != common::Running::Kind::kElsewhere) return;
  const auto host = running.ready ? running.ready->host : std::string();
  throw base::UsageError("musterd runs on another host (" + running.why +
                         "): " + (host.empty() ? "run this there" : "run it there: ssh " + host + " " + command));
}

std::string place_of_job(const slurm::ListedJob& job) {
  const bool is_queued = slurm::classify(job.state.state) == slurm::JobPhase::kQueued;
  return is_queued ? "queued" : "on " + job.node_list;
}

/// The store's word about the attempt that a comment names; empty: musterd goes on with it.
std::string why_strange(store::Store& store, const executors::on_slurm::CommentName& name) {
  const auto of = std::string(name.is_array ? "an array from job " : "job ") + std::to_string(name.first.job) +
                  " attempt " + std::to_string(name.first.number);
  const auto job = store.load(name.first.job);
  if (!job) return of + ", which the backup does not have";
  if (name.is_array) return {};  // its jobs end one by one
  if (core::is_ended(job->state)) return of + ", and the job has ended in the backup";
  return name.first.number > job->attempts.size() + 1
             ? of + ", and the backup has " + core::count_text(job->attempts.size(), "attempt") + " of it"
             : std::string();
}

void tell_strangers(store::Store& store) {
  base::ProcessRunner runner(true, 0);
  if (!reason_against_slurm("auto", runner).empty()) return;
  slurm::Client client(runner, {.conf = environment("SLURM_CONF")});
  const auto listed = client.list();
  if (!listed) {
    std::cout << "Slurm does not answer (" << listed.why()
              << "), so it is not known whether it has jobs that the backup does not know: look for comments that "
                 "begin with muster:"
              << common::store_name(store.secret()) << ": in squeue --Format=jobid,comment\n";
    return;
  }
  const auto lines = strangers(*listed, store);
  if (lines.empty()) return;
  std::cout << "Slurm has jobs of this store that nobody will follow. End each, or let it run to its end:\n";
  for (const auto& line : lines) std::cout << "  " << line << "\n";
}

}  // namespace

std::vector<std::string> strangers(const std::vector<slurm::ListedJob>& listed, store::Store& store) {
  std::vector<std::string> lines;
  const auto own = common::store_name(store.secret());
  for (const auto& job : listed) {
    const auto name = executors::on_slurm::read_comment(own, job.comment);
    if (!name || slurm::classify(job.state.state) == slurm::JobPhase::kEnded) continue;
    const auto why = why_strange(store, *name);
    const auto id = slurm::to_string(job.id);
    if (!why.empty()) lines.push_back("scancel " + id + "  # " + place_of_job(job) + ": " + why);
  }
  return lines;
}

void back_up(const fs::path& data_folder, const fs::path& file, bool with_metrics) {
  const common::DataFolder data(data_folder);
  refuse_other_hosts(common::who_runs(data_folder), "muster admin backup " + fs::absolute(file).string());
  std::error_code error;
  const auto token = fs::exists(data.token(), error) ? common::load_or_create_token(data.token()) : std::string();
  const json note = {{"format", 1},
                     {"made_at", common::time_text(common::RealClock().wall())},
                     {"host", base::host_name()},
                     {"data_folder", data_folder.string()},
                     {"token", token}};
  const auto facts = store::write_backup(data.database(), fs::absolute(file), note.dump(), with_metrics);
  std::cout << file.string() << ": " << content_text(facts) << "\n";
  if (facts.metrics_bytes > 0) {
    std::cout << store::metrics_of_backup(file).string() << ": metrics; " << size_text(facts.metrics_bytes) << "\n";
  } else {
    std::cout << "without metrics, which --metrics adds; without logs and checkpoints, which lie in "
              << (data_folder / "jobs").string() << " and where job files say\n";
  }
}

void restore(const fs::path& data_folder, const fs::path& file) {
  const common::DataFolder data(data_folder);
  refuse_other_hosts(common::who_runs(data_folder), "muster down, then run this here again");
  const auto tell = [](const std::string& text) { std::cout << text << "\n"; };
  const auto facts = store::restore_backup(fs::absolute(file), data.database(), tell);
  const auto note = json::parse(facts.note, nullptr, false);
  const auto told = [&](const char* key) { return note.is_object() ? note.value(key, std::string()) : std::string(); };
  std::error_code error;
  if (const auto token = told("token"); !token.empty() && !fs::exists(data.token(), error)) {
    base::create_file_durably(data.token(), token + "\n", 0600);
    store::give_to_owner(data.token());
  }
  std::cout << data_folder.string() << ": " << content_text(facts)
            << (told("made_at").empty() ? "" : "; the backup was made at " + told("made_at")) << "\n";
  if (facts.metrics_bytes == 0) std::cout << "the backup has no metrics: those of this folder stay, if there are any\n";
  {
    const auto store = store::open_sqlite_store(data.database(), {.tell = tell});
    tell_strangers(*store);
  }
  for (const auto& database : {data.database(), store::metrics_file_of(data.database())}) {
    for (const auto* end : {"", "-wal", "-shm", ".clean"}) store::give_to_owner(database.string() + end);
  }
  const auto was_at = told("data_folder");
  std::cout << "next: start musterd"
            << (was_at.empty() || was_at == data_folder.string()
                    ? ""
                    : ", with --moved if no musterd uses " + was_at + " any more, or with --fork to try the backup")
            << "\n";
}

}  // namespace musterd
