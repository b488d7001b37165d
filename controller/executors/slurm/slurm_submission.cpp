#include "controller/executors/slurm/slurm_submission.h"

#include <fcntl.h>
#include <sys/file.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "base/durable_file.h"
#include "base/fd.h"
#include "controller/executors/slurm/attempt_files.h"

namespace executors::on_slurm {
namespace {

constexpr const char* kRecord = "slurm.json";
constexpr std::size_t kMostRecord = 16 << 20;  // a list of excluded nodes may be long
constexpr const char* kLock = "submit.lock";
constexpr const char* kUnderWay = "an earlier sbatch for it is still under way";
/// A crash may have left an sbatch's request on its way to slurmctld.
constexpr std::int64_t kInFlightMs = 5000;
constexpr std::int64_t kFreshMs = 1000;
/// After an sbatch without an answer, a list without its comment proves nothing for this long: slurmctld may be slow.
constexpr std::int64_t kLostSettlesMs = 30'000;
/// After an sbatch that ended by itself, a list without its comment proves nothing for this long.
constexpr std::int64_t kEndedSettlesMs = 10'000;
constexpr std::int64_t kLongestPauseMs = 300'000;
/// The pause after an sbatch that reached nobody grows from kTryAgainAfter to this.
constexpr core::Millis kLongestUnreached{10'000};
/// The number of attempts whose failures to reach slurmctld are counted.
constexpr std::size_t kMostUnreached = 10'000;

/// The pause before the next sbatch after this many failures in a row.
std::int64_t pause_after(std::uint32_t failures) {
  constexpr std::uint32_t kDoublings = 5;
  return std::min(kEndedSettlesMs << std::min(std::max(failures, 1U) - 1, kDoublings), kLongestPauseMs);
}

LaunchLater unsure(std::string why) {
  return {.why = std::move(why), .unsure = true};
}

/// Why an attempt waits while its job is looked for.
std::string looking_text(const SubmissionRecord& record) {
  if (!record.unsure) return "looking whether Slurm has taken an earlier sbatch";
  if (record.sbatch_ended)
    return "sbatch failed: " + record.why + ". muster looks whether Slurm has the job all the same";
  return "sbatch gave no answer (" + record.why + "); looking whether Slurm has taken it";
}

/// The fields of a record that JSON takes as they are, by their names.
template <typename Record, typename Use>
void for_each_field(Record& record, Use use) {
  use("comment", record.comment);
  use("tried_at_ms", record.tried_at_ms);
  use("ended_at_ms", record.ended_at_ms);
  use("unsure", record.unsure);
  use("sbatch_ended", record.sbatch_ended);
  use("why", record.why);
  use("failures", record.failures);
  use("set_folder", record.set_folder);
  use("index", record.index);
  use("ranks_per_node", record.ranks_per_node);
  use("exclude", record.exclude);
  use("left_out", record.left_out);
}

/// This process holds the lock, and so does the sbatch that inherits it.
class Lock {
 public:
  explicit Lock(const std::filesystem::path& path) : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
    if (!fd_) throw std::system_error(errno, std::generic_category(), path.string());
    held_ = ::flock(fd_.get(), LOCK_EX | LOCK_NB) == 0;
  }
  bool held() const { return held_; }
  int fd() const { return fd_.get(); }

 private:
  base::Fd fd_;
  bool held_ = false;
};

}  // namespace

std::optional<SubmissionRecord> read_record(const std::filesystem::path& folder) {
  const auto json = nlohmann::json::parse(base::read_small_file(folder / kRecord, kMostRecord), nullptr, false);
  if (!json.is_object()) return std::nullopt;
  try {
    SubmissionRecord record;
    for_each_field(record, [&](const char* name, auto& field) { field = json.value(name, field); });
    record.id = ::slurm::parse_job_id(json.value("id", ""));
    record.stop_grace = core::Millis(json.value("stop_grace_ms", record.stop_grace.count()));
    record.time_limit = core::Millis(json.value("time_limit_ms", record.time_limit.count()));
    return record;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::filesystem::path slurm_log_of(const std::filesystem::path& attempt_folder) {
  // An earlier musterd has written a record for each element of an array.
  if (const auto record = read_record(attempt_folder); record && !record->set_folder.empty()) {
    return log_of_element({record->set_folder, record->index});
  }
  const auto place = element_place(attempt_folder);
  return place ? log_of_element(*place) : attempt_folder / "slurm.log";
}

std::filesystem::path log_of_element(const agent::protocol::ElementPlace& place) {
  return std::filesystem::path(place.set_folder) / ("slurm-" + std::to_string(place.index) + ".log");
}

bool may_be_submitted(const std::filesystem::path& folder) {
  std::error_code error;
  return std::filesystem::exists(folder / kRecord, error) || error;
}

void write_record(const std::filesystem::path& folder, const SubmissionRecord& record) {
  nlohmann::ordered_json json = {{"format", 1},
                                 {"id", record.id ? ::slurm::to_string(*record.id) : ""},
                                 {"stop_grace_ms", record.stop_grace.count()},
                                 {"time_limit_ms", record.time_limit.count()}};
  for_each_field(record, [&](const char* name, const auto& field) { json[name] = field; });
  // sbatch's words may hold any bytes.
  base::write_file_durably(folder / kRecord,
                           json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n", 0600);
}

void forget_record(const std::filesystem::path& folder) {
  std::filesystem::remove(folder / kRecord);
}

Submitter::Outcome Submitter::submit(const std::filesystem::path& folder, SubmissionRecord record,
                                     const std::string& script, const spec::Environment& environment) {
  base::make_private_folder(folder);
  const Lock lock(folder / kLock);
  if (!lock.held()) return look_beside_sbatch(folder);
  record.failures = 0;
  if (auto before = read_record(folder)) {
    if (before->id) return *before->id;
    if (auto found = look_for(folder, *before)) return *found;
    record.failures = before->failures;
    const auto passed = now_ms() - before->ended_at_ms, pause = pause_after(before->failures);
    if (before->unsure && passed >= 0 && passed < pause) {
      return LaunchLater{"sbatch failed: " + before->why + ". Slurm does not have the job; muster submits it again",
                         core::Millis(pause - passed)};
    }
  }
  record.id.reset();
  record.unsure = record.sbatch_ended = false;
  record.why.clear();
  record.tried_at_ms = now_ms();
  record.ended_at_ms = 0;
  write_record(folder, record);
  const auto answer = scheduler_.submit(script, {}, {lock.fd()}, environment);
  if (!std::holds_alternative<::slurm::Unreachable>(answer)) pause_unreached(folder, false);
  if (const auto* id = std::get_if<::slurm::JobId>(&answer)) {
    record.id = *id;
    write_record(folder, record);
    return *id;
  }
  if (const auto* unsure = std::get_if<::slurm::Unsure>(&answer)) return failed(folder, std::move(record), *unsure);
  // Slurm refused the job, or the request cannot have reached slurmctld.
  forget_record(folder);
  if (const auto* refused = std::get_if<::slurm::Refused>(&answer)) return *refused;
  return LaunchLater{std::get<::slurm::Unreachable>(answer).why, pause_unreached(folder, true)};
}

// The count is not written down. A controller that comes back begins anew.
core::Millis Submitter::pause_unreached(const std::filesystem::path& folder, bool again) {
  std::lock_guard lock(mutex_);
  if (!again || unreached_.size() >= kMostUnreached) {
    unreached_.erase(folder);
    if (!again) return kTryAgainAfter;
  }
  auto& times = unreached_[folder];
  const auto pause = kTryAgainAfter * (1 << std::min(times, 4U));
  times += 1;
  return std::min<core::Millis>(pause, kLongestUnreached);
}

Submitter::Outcome Submitter::failed(const std::filesystem::path& folder, SubmissionRecord record,
                                     const ::slurm::Unsure& how) {
  record.unsure = true;
  record.sbatch_ended = how.ended;
  record.why = how.why;
  record.failures += 1;
  record.ended_at_ms = now_ms();
  write_record(folder, record);
  return unsure(looking_text(record));
}

// A hung sbatch may live for ever. No second sbatch is called beside it, but its job is looked for.
Submitter::Outcome Submitter::look_beside_sbatch(const std::filesystem::path& folder) {
  auto record = read_record(folder);
  if (!record) return unsure(kUnderWay);
  if (record->id) return *record->id;
  const auto listing = listing_since(record->tried_at_ms);
  if (!listing->jobs) return unsure(listing->jobs.why());
  const auto id = listed(*listing, folder, *record);
  return id ? Outcome(*id) : Outcome(unsure(kUnderWay));
}

std::optional<Submitter::Outcome> Submitter::look(const std::filesystem::path& folder) {
  if (!read_record(folder)) return std::nullopt;
  const Lock lock(folder / kLock);
  if (!lock.held()) return look_beside_sbatch(folder);
  auto record = read_record(folder);
  if (!record) return std::nullopt;
  if (record->id) return *record->id;
  return look_for(folder, *record);
}

// An overwhelmed slurmctld leaves many submissions unsure at once. One query serves all whose sbatch was gone before.
std::shared_ptr<const Submitter::Listing> Submitter::listing_since(std::int64_t ended_at_ms) {
  const auto before = listings_.load();
  std::lock_guard lock(mutex_);
  const auto now = now_ms();
  if (newest_ && newest_->asked_at_ms >= ended_at_ms) {
    const bool while_waiting = listings_ != before;
    if (while_waiting || (newest_->jobs && std::abs(now - newest_->asked_at_ms) < kFreshMs)) return newest_;
  }
  ++listings_;
  newest_ = std::make_shared<Listing>(Listing{now, list_()});
  return newest_;
}

// The caller holds the lock. nullopt: Slurm surely does not have the job.
std::optional<Submitter::Outcome> Submitter::look_for(const std::filesystem::path& folder, SubmissionRecord& record) {
  if (record.ended_at_ms == 0) {
    record.ended_at_ms = now_ms();
    write_record(folder, record);
  }
  const auto listing = listing_since(record.ended_at_ms);
  if (!listing->jobs) return unsure(listing->jobs.why());
  if (const auto id = listed(*listing, folder, record)) return *id;
  const auto settle = !record.unsure ? kInFlightMs : record.sbatch_ended ? kEndedSettlesMs : kLostSettlesMs;
  const auto passed = listing->asked_at_ms - record.ended_at_ms;
  // A clock that was set back must not make the attempt wait for ever.
  if (passed >= 0 && passed < settle) return unsure(looking_text(record));
  return std::nullopt;
}

// Anybody may write the comment of an attempt, while nobody else submits in its folder. A data folder that was moved
// keeps the last two names. A listing does not tell folders, so Slurm is asked for the job. Where it does not answer,
// or tells no folder, the comment has to do.
bool Submitter::is_submitted_in(const std::filesystem::path& folder, std::uint64_t number) {
  const auto shown = scheduler_.find(number);
  if (!shown || shown->empty()) return true;
  return std::ranges::any_of(*shown, [&](const ::slurm::ListedJob& job) {
    const std::filesystem::path there = job.work_folder;
    const bool is_same =
        there.filename() == folder.filename() && there.parent_path().filename() == folder.parent_path().filename();
    return there.empty() || is_same;
  });
}

// The number of the listed job, which is also written into the record.
std::optional<::slurm::JobId> Submitter::listed(const Listing& listing, const std::filesystem::path& folder,
                                                SubmissionRecord& record) {
  // If several jobs have the comment, a job that is not over counts: it would run unseen.
  const ::slurm::ListedJob* found = nullptr;
  for (const auto& job : *listing.jobs) {
    if (job.comment != record.comment || !is_submitted_in(folder, job.id.job)) continue;
    const bool is_over = ::slurm::classify(job.state.state) == ::slurm::JobPhase::kEnded;
    if (found == nullptr || !is_over) found = &job;
    if (!is_over) break;
  }
  if (found != nullptr) {
    record.id = ::slurm::JobId{found->id.job, {}};
    write_record(folder, record);
    return *record.id;
  }
  // The job ran, and Slurm has forgotten it. The status files of its ranks tell the rest.
  if (any_rank_status(folder)) return ::slurm::JobId{0, {}};
  return std::nullopt;
}

}  // namespace executors::on_slurm
