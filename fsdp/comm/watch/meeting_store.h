#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <vector>

namespace fsdp::watch {

class Watcher;

/// The store that a mesh's transports meet at. A wait for a key ends when a rank is gone, because that rank may be the
/// one that would write the key: see [Note: meeting] in watcher.h. Thread-safe as the store below it.
class MeetingStore : public c10d::PrefixStore {
 public:
  /// `watcher` may be gone later: then waits are those of `store`.
  MeetingStore(std::string prefix, c10::intrusive_ptr<c10d::Store> store, std::weak_ptr<Watcher> watcher)
      : PrefixStore(std::move(prefix), std::move(store)), watcher_(std::move(watcher)) {}

  std::vector<std::uint8_t> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

  /// Throws c10::Error naming a rank that is gone.
  void check_all_here() const;

 private:
  std::weak_ptr<Watcher> watcher_;
};

}  // namespace fsdp::watch
