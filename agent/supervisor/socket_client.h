#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"

namespace agent::supervisor {

/// One connection to a supervisor's socket. It is told every fact from the first one on, and between facts what counts
/// now alone. Nothing waits for it.
class Client {
 public:
  explicit Client(base::Fd socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }
  bool is_gone() const { return gone_; }
  /// Some of what is to be told does not fit into the socket's buffer now.
  bool is_behind(std::string_view facts) const { return told_ < facts.size() || !now_.empty(); }
  /// Tells what it has not been told of `facts`, which only grow.
  void tell(std::string_view facts);
  /// Tells a line that counts now alone, unless there is something else to tell first. Whoever does not read misses it.
  void tell_now(std::string_view facts, const std::string& line);
  /// The lines that it has said.
  std::vector<std::string> hear();

 private:
  base::Fd socket_;
  std::size_t told_ = 0;  // bytes of the facts
  std::string now_;       // what is left of a line of tell_now()
  std::string words_;     // an unfinished line
  bool gone_ = false;
};

}  // namespace agent::supervisor
