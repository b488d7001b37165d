#include "fsdp/comm/watch/meeting_store.h"

#include <algorithm>

#include "fsdp/comm/watch/watcher.h"

namespace fsdp::watch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// How long a wait sleeps until it looks again who is gone.
constexpr milliseconds kLook{200};

}  // namespace

std::vector<std::uint8_t> MeetingStore::get(const std::string& key) {
  wait({key}, getTimeout());
  return PrefixStore::get(key);
}

void MeetingStore::wait(const std::vector<std::string>& keys) {
  wait(keys, getTimeout());
}

void MeetingStore::wait(const std::vector<std::string>& keys, const milliseconds& timeout) {
  const auto deadline = Clock::now() + timeout;
  for (;;) {
    const auto begin = Clock::now();
    const auto left = std::chrono::ceil<milliseconds>(deadline - begin);
    const milliseconds patience = std::clamp(left, milliseconds(1), kLook);
    try {
      return PrefixStore::wait(keys, patience);
    } catch (const std::exception&) {
      check_all_here();
      // An error that comes before its time is no timeout: the store itself is gone.
      if (Clock::now() >= deadline || Clock::now() - begin < patience / 2) throw;
    }
  }
}

void MeetingStore::check_all_here() const {
  if (const auto watcher = watcher_.lock()) watcher->check_all_here();
}

}  // namespace fsdp::watch
