#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/common/clock.h"
#include "controller/common/data_folder.h"
#include "controller/common/loop.h"
#include "controller/core/job.h"

namespace stacks {

/// Stacks of the ranks of one attempt that were taken at one moment.
struct StackSet {
  std::uint64_t number = 0;
  std::int64_t at_ms = 0;                          // since 1970
  std::string why{};                               // "suspected", "before_end", "asked"
  std::string user{};                              // who has asked; empty: muster
  std::uint32_t ranks = 0;                         // of the attempt
  bool over = true;                                // nobody is waited for any more
  std::set<core::RankNumber> given{};              // these have given one
  std::map<core::RankNumber, std::string> none{};  // why these have not
};

/// The stacks of attempts: asks for them, waits for them, and keeps them as files in the attempt's folder, which go
/// with the job (agent/protocol/files.h).
///
///   ask(): under way -- each rank has given one, or kPatience is over --> over
///
/// A rank's stack is a file that take() brings. One that comes late is kept too. After a crash, what was under way is
/// over, and its files are there.
///
/// Thread-safe; one thread of its own, which touches the disk. Without threads, poll() does its work.
class StackKeeper {
 public:
  /// The agents give themselves less.
  static constexpr core::Millis kPatience{6'000};
  static constexpr core::Millis kLook{100};
  /// Sets of one attempt. What people asked for goes first, the oldest first.
  static constexpr std::size_t kMostKept = 8;
  /// Texts of agents that wait for the disk, all together. What comes beyond is dropped.
  static constexpr std::size_t kMostWaitingBytes = std::size_t{64} << 20;

  struct Parts {
    common::Clock& clock;
    common::DataFolder data;
    /// Asks the agents. False: there is nobody to ask.
    std::function<bool(const core::AttemptKey&, std::uint64_t number)> ask;
    /// Why a rank gave none. Called from the thread of this object.
    std::function<std::string(const core::AttemptKey&, core::RankNumber)> why_none;
    /// A request is over.
    std::function<void(const core::AttemptKey&)> changed;
  };
  StackKeeper(Parts parts, bool threads);

  /// Returns at once with the number of the set; one under way of the same attempt is joined. 0: nobody can be asked.
  std::uint64_t ask(const core::AttemptKey& key, const std::string& why, const std::string& user, std::uint32_t ranks);
  /// A rank's stack from the agent beside it; of a set that is not known it is dropped.
  void take(const core::AttemptKey& key, std::uint64_t number, core::RankNumber rank, std::string text);
  /// Who has given one to the request of the attempt that is under way; nullopt: none is.
  std::optional<std::set<core::RankNumber>> given(const core::AttemptKey& key) const;

  /// The sets that are kept of the attempt, oldest first. Reads the disk.
  std::vector<StackSet> sets(const core::AttemptKey& key) const;
  /// At most `most` bytes of a kept stack; empty: there is none.
  std::string text(const core::AttemptKey& key, std::uint64_t number, core::RankNumber rank,
                   std::size_t most = SIZE_MAX) const;

  void poll() { work(); }
  void close() { loop_.close(); }

 private:
  struct UnderWay {
    StackSet set;
    core::Millis until{0};  // monotonic
    bool is_written = false;
  };
  struct Text {
    core::AttemptKey key;
    std::uint64_t number = 0;
    core::RankNumber rank = 0;
    std::string text;
  };
  std::optional<core::Millis> work();
  void write_texts();
  std::filesystem::path folder(const core::AttemptKey& key, std::uint64_t number) const;
  void write_set(const core::AttemptKey& key, const StackSet& set) const;
  void forget_oldest(const core::AttemptKey& key) const;

  const Parts parts_;
  mutable std::mutex mutex_;
  std::map<core::AttemptKey, UnderWay> under_way_;
  std::deque<Text> texts_;
  std::size_t waiting_bytes_ = 0;
  std::uint64_t newest_ = 0;  // number
  common::Loop loop_;
};

}  // namespace stacks
