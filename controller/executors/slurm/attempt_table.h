#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "executors/slurm/job_doubt.h"
#include "executors/slurm/slurm_attempt.h"

namespace executors::on_slurm {

/// One attempt that the executor follows: who it is in Slurm, and what is concluded of it.
struct Tracked {
  SlurmAttempt attempt;
  JobIdentity job;
  std::filesystem::path folder;
  core::Time submitted_after{}, submitted_before{};
  std::string exclude = {};                        // the nodes that the job file excludes
  std::vector<std::string> left_out = {};          // the nodes that the job does not get either while they are lost
  std::optional<::slurm::ListedJob> listed = {};   // in the newest listing, if the number is still this job's there
  std::vector<core::EventBody> told = {};          // facts to tell before those of `attempt`
  bool checked = false;                            // the word of its health check, or of its failed launch, is told
  std::optional<core::Millis> unlaunched_at = {};  // Slurm could not start the job, and is asked why since then
  std::string refused = {};                        // what Slurm refused last, and why
  std::optional<core::Time> suspended_since = {};  // as far as listings have told
  JobDoubt doubt = {};                             // whether the newest listing may be believed about the job
};

/// The attempts of the executor, which its threads share. Thread-safe.
class AttemptTable {
 public:
  struct State {
    std::map<core::AttemptKey, Tracked> attempts;
    std::set<core::AttemptKey> launching;           // launch() is asking Slurm for them
    std::map<core::AttemptKey, std::string> later;  // why launch() has not handed them over yet
    bool urgent = false;                            // the next listing should not wait for its turn
  };

  /// `wake` is called, without the lock, after something that the threads should look at. Before any other call.
  void on_change(std::function<void()> wake) { wake_ = std::move(wake); }

  /// Calls `use` with the state while it is locked.
  template <typename Use>
  auto locked(Use&& use) {
    std::lock_guard lock(mutex_);
    return use(state_);
  }
  template <typename Use>
  auto locked(Use&& use) const {
    std::lock_guard lock(mutex_);
    return use(state_);
  }
  /// Calls `use` with one attempt, if it is followed. A `use` that returns false has left nothing to look at.
  template <typename Use>
  void with(const core::AttemptKey& key, Use&& use) {
    const bool is_news = locked([&](State& state) {
      const auto place = state.attempts.find(key);
      if (place == state.attempts.end()) return false;
      bool used = true;
      if constexpr (std::is_void_v<std::invoke_result_t<Use, Tracked&>>) {
        use(place->second);
      } else {
        used = use(place->second);
      }
      state.urgent = state.urgent || place->second.attempt.wants_listing();
      return used;
    });
    if (is_news) wake();
  }
  /// What `use` makes of one attempt; `otherwise`: the attempt is not followed.
  template <typename T, typename Use>
  T of(const core::AttemptKey& key, T otherwise, Use&& use) const {
    std::lock_guard lock(mutex_);
    const auto place = state_.attempts.find(key);
    return place == state_.attempts.end() ? otherwise : use(place->second);
  }
  /// What `pick` finds in each attempt, without the attempts in which it finds nothing.
  template <typename Pick>
  auto pick(Pick&& pick) {
    std::vector<typename std::invoke_result_t<Pick, const core::AttemptKey&, Tracked&>::value_type> picked;
    std::lock_guard lock(mutex_);
    for (auto& [key, tracked] : state_.attempts) {
      if (auto found = pick(key, tracked)) picked.push_back(*std::move(found));
    }
    return picked;
  }
  /// The next listing should not wait for its turn.
  void hurry() {
    locked([](State& state) { state.urgent = true; });
    wake();
  }
  void wake() const {
    if (wake_) wake_();
  }

 private:
  mutable std::mutex mutex_;
  State state_;
  std::function<void()> wake_;
};

}  // namespace executors::on_slurm
