#include "runtime/slurm/submission.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <system_error>

#include "runtime/durable_file.h"
#include "runtime/slurm/task_files.h"

namespace runtime::on_slurm {
namespace {

constexpr const char* kRecord = "slurm.json";
constexpr std::size_t kMostRecord = 16 << 20;  // a list of excluded nodes may be long
constexpr const char* kLock = "submit.lock";
constexpr const char* kUnderWay = "an earlier sbatch for it is still under way";
/// A crash may have left an sbatch's request on its way to slurmctld.
constexpr std::int64_t kInFlightMs = 5000;
constexpr std::int64_t kFreshMs = 1000;

/// Held by this process and by the sbatch that inherits it.
class Lock {
 public:
  explicit Lock(const std::filesystem::path& path)
      : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)), held_(false) {
    if (fd_ < 0) throw std::system_error(errno, std::generic_category(), path.string());
    held_ = ::flock(fd_, LOCK_EX | LOCK_NB) == 0;
  }
  ~Lock() { ::close(fd_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  bool held() const { return held_; }
  int fd() const { return fd_; }

 private:
  int fd_;
  bool held_;
};

}  // namespace

std::optional<SubmissionRecord> read_record(const std::filesystem::path& folder) {
  const auto json = nlohmann::json::parse(read_small_file(folder / kRecord, kMostRecord), nullptr, false);
  if (!json.is_object()) return std::nullopt;
  try {
    SubmissionRecord record;
    record.comment = json.value("comment", "");
    record.id = ::slurm::parse_job_id(json.value("id", ""));
    record.tried_at_ms = json.value("tried_at_ms", std::int64_t{0});
    record.ended_at_ms = json.value("ended_at_ms", std::int64_t{0});
    record.unsure = json.value("unsure", false);
    record.set_folder = json.value("set_folder", "");
    record.index = json.value("index", std::uint32_t{0});
    record.ranks_per_node = json.value("ranks_per_node", std::uint32_t{1});
    record.stop_grace = core::Millis(json.value("stop_grace_ms", record.stop_grace.count()));
    record.time_limit = core::Millis(json.value("time_limit_ms", record.time_limit.count()));
    record.exclude = json.value("exclude", "");
    record.left_out = json.value("left_out", std::vector<std::string>{});
    return record;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::filesystem::path slurm_log_of(const std::filesystem::path& attempt_folder) {
  const auto record = read_record(attempt_folder);
  if (!record || record->set_folder.empty()) return attempt_folder / "slurm.log";
  return std::filesystem::path(record->set_folder) / ("slurm-" + std::to_string(record->index) + ".log");
}

bool may_be_submitted(const std::filesystem::path& folder) {
  std::error_code error;
  return std::filesystem::exists(folder / kRecord, error) || error;
}

void write_record(const std::filesystem::path& folder, const SubmissionRecord& record) {
  const nlohmann::ordered_json json = {{"format", 1},
                                       {"comment", record.comment},
                                       {"id", record.id ? ::slurm::to_string(*record.id) : ""},
                                       {"tried_at_ms", record.tried_at_ms},
                                       {"ended_at_ms", record.ended_at_ms},
                                       {"unsure", record.unsure},
                                       {"set_folder", record.set_folder},
                                       {"index", record.index},
                                       {"ranks_per_node", record.ranks_per_node},
                                       {"stop_grace_ms", record.stop_grace.count()},
                                       {"time_limit_ms", record.time_limit.count()},
                                       {"exclude", record.exclude},
                                       {"left_out", record.left_out}};
  write_file_durably(folder / kRecord, json.dump(2) + "\n", 0600);
}

void forget_record(const std::filesystem::path& folder) {
  std::filesystem::remove(folder / kRecord);
}

Submitter::Outcome Submitter::submit(const std::filesystem::path& folder, SubmissionRecord record,
                                     const std::string& script, const launch::Environment& environment) {
  make_folders(folder);
  const Lock lock(folder / kLock);
  if (!lock.held()) return Later{kUnderWay};
  if (auto before = read_record(folder)) {
    if (before->id) return *before->id;
    if (auto found = look_for(folder, *before)) return *found;
  }
  record.id.reset();
  record.unsure = false;
  record.tried_at_ms = now_ms();
  record.ended_at_ms = 0;
  write_record(folder, record);
  const auto answer = scheduler_.submit(script, {}, {lock.fd()}, environment);
  if (const auto* id = std::get_if<::slurm::JobId>(&answer)) {
    record.id = *id;
    write_record(folder, record);
    return *id;
  }
  if (const auto* unsure = std::get_if<::slurm::Unsure>(&answer)) {
    record.unsure = true;
    record.ended_at_ms = now_ms();
    write_record(folder, record);
    return Later{"sbatch gave no answer (" + unsure->why + "); looking whether Slurm has taken it"};
  }
  // It cannot have reached slurmctld.
  forget_record(folder);
  if (const auto* refused = std::get_if<::slurm::Refused>(&answer)) return *refused;
  return Later{std::get<::slurm::Unreachable>(answer).why, false};
}

std::optional<Submitter::Outcome> Submitter::look(const std::filesystem::path& folder) {
  if (!read_record(folder)) return std::nullopt;
  const Lock lock(folder / kLock);
  if (!lock.held()) return Later{kUnderWay};
  auto record = read_record(folder);
  if (!record) return std::nullopt;
  if (record->id) return *record->id;
  return look_for(folder, *record);
}

// An overwhelmed slurmctld leaves many unsure at once: one query serves all whose sbatch was gone before it.
std::shared_ptr<const Submitter::Listing> Submitter::listing_since(std::int64_t ended_at_ms) {
  const auto before = listings_.load();
  std::lock_guard lock(mutex_);
  const auto now = now_ms();
  if (newest_ && newest_->asked_at_ms >= ended_at_ms) {
    const bool while_waiting = listings_ != before;
    if (while_waiting || (newest_->jobs && std::abs(now - newest_->asked_at_ms) < kFreshMs)) return newest_;
  }
  ++listings_;
  newest_ = std::make_shared<Listing>(Listing{now, scheduler_.list(user_)});
  return newest_;
}

// With the lock held. nullopt: it was surely not taken.
std::optional<Submitter::Outcome> Submitter::look_for(const std::filesystem::path& folder, SubmissionRecord& record) {
  if (record.ended_at_ms == 0) {
    record.ended_at_ms = now_ms();
    write_record(folder, record);
  }
  const auto listing = listing_since(record.ended_at_ms);
  if (!listing->jobs) return Later{listing->jobs.why()};
  for (const auto& job : *listing->jobs) {
    if (job.comment != record.comment) continue;
    record.id = ::slurm::JobId{job.id.job, {}};
    write_record(folder, record);
    return *record.id;
  }
  // It ran, and Slurm has forgotten it: its ranks' status files tell the rest.
  if (any_rank_status(folder)) return ::slurm::JobId{0, {}};
  const auto settle = record.unsure ? settle_.count() : kInFlightMs;
  const auto passed = listing->asked_at_ms - record.ended_at_ms;
  // A clock that was set back must not make it wait for ever.
  if (passed >= 0 && passed < settle) return Later{"looking whether Slurm has taken an earlier sbatch"};
  return std::nullopt;
}

}  // namespace runtime::on_slurm
