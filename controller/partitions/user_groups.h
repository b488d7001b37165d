#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "controller/common/clock.h"

namespace partitions {

/// Names of the groups that this machine knows the user to be in; none for a user it does not know. At most
/// kMostGroups. May ask a directory service, and take its time.
std::vector<std::string> groups_of(const std::string& user);
inline constexpr int kMostGroups = 4096;

/// Names of the groups of users, remembered for a minute, so that a burst of submissions asks once. Thread-safe.
class UserGroups {
 public:
  using Ask = std::function<std::vector<std::string>(const std::string& user)>;
  explicit UserGroups(common::Clock& clock, Ask ask = groups_of) : clock_(clock), ask_(std::move(ask)) {}
  std::vector<std::string> of(const std::string& user);

  static constexpr core::Millis kRemembered{60'000};
  static constexpr std::size_t kMostUsers = 1000;

 private:
  struct Known {
    core::Millis until{0};
    std::vector<std::string> groups;
  };
  common::Clock& clock_;
  const Ask ask_;
  std::mutex mutex_;
  std::map<std::string, Known> known_;
};

}  // namespace partitions
