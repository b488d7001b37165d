#pragma once

#include <string>
#include <utility>

#include "controller/store/store.h"
#include "tests/controller/core/story.h"

namespace test {

/// Writes the events of one job into a store, one after the other.
class Saga {
 public:
  explicit Saga(store::Store& store, std::string request_id = "", std::string spec = "{}")
      : store_(&store), request_id_(std::move(request_id)), spec_(std::move(spec)), story_(0) {}

  /// The first event takes the next job id.
  std::int64_t tell(core::EventBody body) {
    if (story_.job.version == 0) story_.job.id = store_->next_job_id();
    const Story before = story_;
    story_.tell(std::move(body));
    const bool first = story_.job.version == 1;
    const store::Commit commit{story_.events.back(), store::shared(story_.last), first ? request_id_ : "",
                               first ? std::string_view(spec_) : std::string_view()};
    try {
      return store_->append({&commit, 1}).at(0);
    } catch (const store::Error&) {
      story_ = before;
      throw;
    }
  }
  Saga& at(std::int64_t ms) {
    story_.now = at_ms(ms);
    return *this;
  }
  void run(core::AttemptNumber number) {
    tell(core::AttemptLaunched{number, "handle", "node1", {}});
    for (core::RankNumber rank = 0; rank < job().world_size; ++rank) tell(core::RankJoined{number, rank, "node1", 1});
  }
  const core::Job& job() const { return story_.job; }

 private:
  store::Store* store_;
  std::string request_id_;
  std::string spec_;
  Story story_;
};

}  // namespace test
