#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/types.h"
#include "slurm/scheduler.h"

namespace runtime::on_slurm {

/// Whether a node is there on which nobody of an attempt is heard any more. A step that somebody has stopped is as
/// silent as a node without power, and its node is healthy.
///
/// A node answers if Slurm calls it up and its slurmd takes a connection. Asking takes a moment and is done by another
/// thread: meanwhile the word is kAsking, and after kPatience kSilent. Whoever asks comes back a round later, and a
/// round may take longer than an answer is fresh: so an answer that nobody has had yet is kept for kKept. Pure: times
/// are passed in.
class NodeCheck {
 public:
  enum class Word { kAsking, kAnswers, kSilent };

  /// Has the node asked if the last answer is too old.
  Word word(const std::string& node, core::Millis now);
  /// Nodes that are to be asked now.
  std::vector<std::string> wanted() const;
  void answered(const std::string& node, bool answers, core::Millis now);
  /// Nodes that nobody has asked about for a while are forgotten.
  void forget_old(core::Millis now);

  static constexpr core::Millis kPatience{2000};
  static constexpr core::Millis kFresh{5000};
  static constexpr core::Millis kKept{30'000};
  static constexpr core::Millis kForgottenAfter{60'000};

 private:
  struct Node {
    core::Millis asked_at{0};  // since when an answer is waited for
    std::optional<core::Millis> answered_at;
    bool answers = false;
    bool is_told = false;  // somebody has had the answer
  };
  std::map<std::string, Node> nodes_;
};

/// Where the slurmd of a node may listen. Slurm names a node's own port only where it differs from SlurmdPort of its
/// configuration, which is one number or a range: "6818-6820". Empty: Slurm's default.
std::vector<std::string> ports_of(const ::slurm::Node& node, const std::string& slurmd_port);

/// Which of these nodes answer, by name: Slurm calls them up, and their slurmds take a connection. All are asked at
/// once, and the limit is for all together. Left out are those of which nothing is known: their names could not be
/// looked up in time, or they are more than kMostAskedAtOnce.
std::map<std::string, bool> ask(const std::vector<::slurm::Node>& nodes, const std::string& slurmd_port,
                                core::Millis limit);
inline constexpr std::size_t kMostAskedAtOnce = 512;

}  // namespace runtime::on_slurm
