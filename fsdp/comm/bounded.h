#pragma once
#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace fsdp {

/// Runs `work` on a thread of its own and waits for it. Returns false after `limit`: the work goes on alone, and must
/// own all that it uses. Throws what `work` throws until then; later nobody hears of it.
bool run_for_at_most(std::chrono::milliseconds limit, std::function<void()> work);

/// Work that threads do at one time.
struct NamedWork {
  std::string name;
  std::function<void()> work;                  ///< owns all that it uses
  std::function<std::string()> why_late = {};  ///< words for people, asked where it has not ended in time; may be null
};

struct TogetherOptions {
  std::chrono::milliseconds limit{};
  /// Asked a few times a second meanwhile. Throws where there is no hope. Null: nobody is asked.
  std::function<void()> check = {};
  /// Called once when a work has failed, `check` has thrown or the limit has passed. Lets the others end soon. Null:
  /// they end when they end.
  std::function<void()> give_up = {};
};

/// Runs all `works` at one time, each on a thread of its own, and returns when all have ended. Throws the first
/// failure, also that of `check`, and c10::Error that names those that have not ended after the limit. Works that do
/// not end within a second from then on go on alone.
void run_together(std::vector<NamedWork> works, const TogetherOptions& options);

}  // namespace fsdp
