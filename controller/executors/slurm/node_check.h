#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "controller/core/event.h"
#include "slurm/scheduler.h"

namespace executors::on_slurm {

/// Tells whether a node is there from which no rank and no task of an attempt is heard any more. A step that somebody
/// has stopped is as silent as a node without power, but its node is healthy.
///
/// A node answers if Slurm calls it up and its slurmd takes a connection. Another thread asks, which takes a moment,
/// and longer on a busy machine. Meanwhile the word is kAsking, and after kPatience kSilent. The caller comes back a
/// round later, and a round may take longer than an answer is fresh. So an answer that no caller has had yet is kept
/// for kKept. Pure: times are passed in.
class NodeCheck {
 public:
  enum class Word { kAsking, kAnswers, kSilent };

  /// Returns what is known of the node. If the last answer is too old, the node is to be asked.
  Word word(const std::string& node, core::Millis now);
  /// Nodes that are to be asked now.
  std::vector<std::string> wanted() const;
  void answered(const std::string& node, bool answers, core::Millis now);
  /// Forgets the nodes that no caller has wanted for a while.
  void forget_old(core::Millis now) {
    std::erase_if(nodes_, [&](const auto& entry) { return now - entry.second.asked_at >= kForgottenAfter; });
  }

  static constexpr core::Millis kPatience{10'000};
  static constexpr core::Millis kFresh{5000};
  static constexpr core::Millis kKept{30'000};
  static constexpr core::Millis kForgottenAfter{60'000};

 private:
  struct Node {
    core::Millis asked_at{0};  // an answer is waited for since then
    std::optional<core::Millis> answered_at;
    bool answers = false;
    bool is_told = false;  // a caller has had the answer
  };
  std::map<std::string, Node> nodes_;
};

/// The ports on which the slurmd of a node may listen. Slurm names a node's own port only if it differs from SlurmdPort
/// of the configuration, which is one number or a range: "6818-6820". Empty `slurmd_port`: Slurm's default.
std::vector<std::string> ports_of(const ::slurm::Node& node, const std::string& slurmd_port);

/// Which of these nodes answer, by name: Slurm calls them up, and their slurmds take a connection. All nodes are asked
/// at once, and the limit is for all together. A node is missing if nothing is known of it: its name could not be
/// looked up in time, or there are more than kMostAskedAtOnce nodes.
std::map<std::string, bool> ask(const std::vector<::slurm::Node>& nodes, const std::string& slurmd_port,
                                core::Millis limit);
inline constexpr std::size_t kMostAskedAtOnce = 512;

/// The nodes that could not start the attempt, as facts about it: Slurm has drained them for that, since `since` by
/// slurmctld's clock. The clock has whole seconds. A node in `left_out` was drained for an earlier attempt.
std::vector<core::EventBody> nodes_without_launch(const std::vector<::slurm::Node>& nodes, core::Time since,
                                                  const std::vector<std::string>& left_out,
                                                  core::AttemptNumber attempt);

}  // namespace executors::on_slurm
