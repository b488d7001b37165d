#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace actions {

/// What waits to be carried out, user by user. The users take turns, so a job of one user waits for at most one piece
/// of work of each other user, however much these have. What one user wants is carried out in the order in which it
/// came.
///
/// A long piece, an array of a thousand jobs, takes its turn like any other. At most `most_long` long pieces are out at
/// once, so that short ones always find somebody who is free.
///
/// Not thread-safe.
template <typename Work>
class Turns {
 public:
  explicit Turns(std::size_t most_long) : most_long_(most_long) {}

  void push(const std::string& user, bool is_long, Work work) {
    auto& queue = waiting_[user];
    if (queue.empty()) order_.push_back(user);
    queue.push_back({is_long, std::move(work)});
  }
  /// The work whose turn it is, and whether it is long; nullopt: none may be begun now. Of what is long, ended() is
  /// told.
  struct Taken {
    bool is_long = false;
    Work work;
  };
  std::optional<Taken> take() {
    const auto may_go = [&](const std::string& user) {
      return !waiting_.at(user).front().is_long || long_out_ < most_long_;
    };
    const auto next = std::ranges::find_if(order_, may_go);
    if (next == order_.end()) return std::nullopt;
    const auto user = *next;
    auto& queue = waiting_.at(user);
    auto taken = std::move(queue.front());
    queue.pop_front();
    order_.erase(next);
    if (queue.empty()) {
      waiting_.erase(user);
    } else {
      order_.push_back(user);
    }
    if (taken.is_long) ++long_out_;
    return taken;
  }
  /// A long piece that take() gave out is done.
  void ended() { --long_out_; }
  void clear() {
    waiting_.clear();
    order_.clear();
  }

 private:
  const std::size_t most_long_;
  std::size_t long_out_ = 0;
  std::map<std::string, std::deque<Taken>> waiting_;  // no queue is empty
  std::deque<std::string> order_;                     // the users of `waiting_`, the next one first
};

}  // namespace actions
