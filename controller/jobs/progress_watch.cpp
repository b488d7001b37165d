#include "controller/jobs/progress_watch.h"

#include <spdlog/spdlog.h>

#include <fstream>
#include <system_error>

#include "base/durable_file.h"
#include "base/patience.h"
#include "controller/jobs/checkpoint_files.h"

namespace jobs {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBefore = 8 << 20;

/// Nobody has written there before the attempt.
bool begins_empty(const muster::v1::JobSpec& spec, const core::AttemptKey& key) {
  return key.number == 1 && spec.checkpoint().folder().empty();
}

/// `before_file`: what the folder held, as note_checkpoint_files() has noted it.
std::optional<core::CheckpointFolderSeen> what_is_new(const fs::path& folder, const fs::path& before_file,
                                                      bool began_empty, core::AttemptNumber attempt) {
  auto before = contents_from_text(base::read_small_file(before_file, kMostBefore));
  if (!before && began_empty) before.emplace().saves.emplace();
  if (!before) {
    before.emplace();
    before->trouble = "what was in " + folder.string() + " before is not known";
  }
  // A save that was cut off is no progress.
  const auto after = before->trouble.empty() ? look_for_whole_saves(folder, *before) : FolderContents{};
  return compare(attempt, *before, after);
}

}  // namespace

// Not flushed to the disk: what a machine's crash loses is told as not known.
void note_checkpoint_files(const muster::v1::JobSpec& spec, const core::AttemptKey& key,
                           const common::DataFolder& data) {
  if (begins_empty(spec, key)) return;
  const auto file = data.checkpoints_before(key);
  std::error_code error;
  if (fs::exists(file, error)) return;  // its ranks may have saved since
  const auto text = to_text(look_into_soon(checkpoint_folder(spec, key.job, data)));
  const auto draft = file.string() + ".tmp";
  std::ofstream(draft, std::ios::binary | std::ios::trunc) << text;
  fs::rename(draft, file, error);
}

ProgressWatch::ProgressWatch(EventLog& event_log, SpecCache& specs, common::DataFolder data, bool threads)
    : event_log_(event_log),
      specs_(specs),
      data_(std::move(data)),
      threads_(threads),
      loop_("a fact about an attempt could not be passed on", threads, [this] { return pass_on(); }) {
  loop_.start();
}

void ProgressWatch::close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  loop_.close();
}

void ProgressWatch::take(core::JobId job, core::EventBody body) {
  const core::AttemptKey key{job, core::attempt_of(body)};
  std::unique_lock lock(mutex_);
  if (closed_) return;
  const bool looks = calls_for_a_look(job, body);
  if (!threads_ || (!looks && !attempts_.contains(key))) {
    lock.unlock();
    if (looks) look(key);
    event_log_.keep(job, std::move(body));
    return;
  }
  ++attempts_[key];
  waiting_.emplace_back(Fact(job, std::move(body)), looks);
  lock.unlock();
  loop_.wake();
}

bool ProgressWatch::calls_for_a_look(core::JobId id, const core::EventBody& body) {
  const auto* exited = std::get_if<core::RankExited>(&body);
  const auto* gone = std::get_if<core::AttemptGone>(&body);
  if (exited == nullptr && gone == nullptr) return false;
  const core::AttemptKey key{id, core::attempt_of(body)};
  try {
    const auto job = event_log_.job(id);
    if (job == nullptr || job->reports() || job->cancel_requested) {
      ends_.erase(key);
      return false;
    }
    auto& ends = ends_[key];
    const bool known = key.number >= 1 && key.number <= job->attempts.size();
    const auto* attempt = known ? &job->attempts[key.number - 1] : nullptr;
    for (core::RankNumber rank = 0; attempt != nullptr && rank < attempt->ranks.size(); ++rank) {
      if (attempt->ranks[rank].state == core::RankState::kExited) ends.ranks.insert(rank);
    }
    if (attempt != nullptr && attempt->cause != core::Cause::kNone) ends.went_wrong = true;
    if (gone != nullptr && gone->cause != core::Cause::kCompleted) ends.went_wrong = true;
    if (exited != nullptr) {
      ends.ranks.insert(exited->rank);
      if (exited->exit != core::ExitStatus{} || exited->out_of_memory) ends.went_wrong = true;
    }
    if (gone == nullptr && ends.ranks.size() < job->world_size) return false;
    const bool looks = ends.went_wrong && (attempt == nullptr || attempt->state != core::AttemptState::kEnded);
    ends_.erase(key);
    return looks;
  } catch (const std::exception& e) {
    spdlog::warn("job {} attempt {}: whether it saved anything is not looked for: {}", id, key.number, e.what());
    return false;
  }
}

std::optional<core::Millis> ProgressWatch::pass_on() {
  std::unique_lock lock(mutex_);
  if (waiting_.empty()) return std::nullopt;
  auto [fact, looks] = std::move(waiting_.front());
  waiting_.pop_front();
  const core::AttemptKey key{fact.first, core::attempt_of(fact.second)};
  lock.unlock();
  if (looks) look(key);
  event_log_.keep(fact.first, std::move(fact.second));
  lock.lock();
  if (--attempts_[key] == 0) attempts_.erase(key);
  return core::Millis(0);
}

void ProgressWatch::look(const core::AttemptKey& key) {
  try {
    const auto spec = specs_.get(key.job);
    if (spec == nullptr) return;
    using Seen = std::optional<core::CheckpointFolderSeen>;
    const auto folder = checkpoint_folder(*spec, key.job, data_);
    const auto seen =
        base::ask_within<Seen>(kFolderPatience, base::file_system_of(folder),
                               [folder, before = data_.checkpoints_before(key), began_empty = begins_empty(*spec, key),
                                key] { return what_is_new(folder, before, began_empty, key.number); });
    if (!seen) {
      event_log_.keep(key.job, core::CheckpointFolderSeen{key.number, 0, "", folder.string() + " did not answer"});
    } else if (*seen) {
      event_log_.keep(key.job, **seen);
    }
  } catch (const std::exception& e) {
    spdlog::warn("job {} attempt {}: whether it saved anything is not known: {}", key.job, key.number, e.what());
  }
}

}  // namespace jobs
