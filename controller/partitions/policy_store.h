#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "controller/common/clock.h"
#include "controller/common/loop.h"
#include "controller/common/outcome.h"
#include "controller/partitions/partition_policies.h"
#include "controller/store/store.h"

namespace partitions {

/// The policies in force, and the only one who changes them: by command, or from a file that is read again when it
/// changes. Every change is durable and audited before it is in force. Thread-safe.
///
/// A file is taken once two looks, a second apart, have found the same in it, so that one that is just being written is
/// not taken for the whole. One that is broken, empty or gone changes nothing: the last good one stays in force, over
/// restarts too, and problem() says so.
class PolicyStore {
 public:
  static constexpr core::Millis kLookEvery{1000};

  using Book = std::shared_ptr<const PartitionPolicies>;
  /// `file` empty: admins change policies by command. Reads what is stored, then the file. Throws store::Error, and
  /// std::runtime_error if the file is broken and no good one is stored: nothing is in force before an admin says what.
  /// `changed` is called after each change.
  PolicyStore(store::Store& store, common::Clock& clock, std::filesystem::path file, bool threads,
              std::function<void()> changed = {});

  void start() {
    if (!file_.empty()) loop_.start(kLookEvery);
  }
  void close() { loop_.close(); }
  /// Looks at the file if that is due. Only without threads.
  void poll();

  Book book() const {
    std::lock_guard lock(mutex_);
    return book_;
  }
  const std::filesystem::path& file() const { return file_; }
  /// Why the file is not in force; empty: it is, or there is none.
  std::string problem() const;

  /// The new policy. `slurm`: as it is now, to see whether it knows a new one.
  common::Outcome<PartitionPolicy> set(const muster::v1::SetPartitionRequest& request,
                                       const executors::ClusterFacts& slurm);
  /// The policy there was.
  common::Outcome<PartitionPolicy> remove(const muster::v1::RemovePartitionRequest& request);

 private:
  void load();
  void look(bool at_once);
  /// Makes the book what the file says. Throws store::Error if the store does not take it.
  void take(std::vector<PartitionPolicy> policies);
  void change(const std::vector<store::AuditRow>& rows, PartitionPolicies next);
  /// `change` by a command: a store that takes no writes is a refusal.
  std::optional<common::Refusal> refused(const store::AuditRow& row, PartitionPolicies next);
  std::optional<common::Refusal> refuse_by_command() const;

  store::Store& store_;
  common::Clock& clock_;
  const std::filesystem::path file_;
  const std::function<void()> changed_;
  std::mutex changing_;  // one change at a time
  mutable std::mutex mutex_;
  Book book_ = std::make_shared<PartitionPolicies>();
  std::string problem_;
  std::optional<std::string> seen_, taken_;  // texts: of the last look, and the one in force or refused
  core::Millis looked_at_{0};
  common::Loop loop_;
};

/// A policy as it is stored and audited: an object of the keys of a partitions file, those alone that are said, without
/// the name. The same policy always gives the same text.
std::string policy_to_json(const PartitionPolicy& policy);

/// The reverse. Keys that this version does not know are left out; throws std::runtime_error for anything else.
PartitionPolicy policy_from_json(const std::string& name, const std::string& json);

}  // namespace partitions
