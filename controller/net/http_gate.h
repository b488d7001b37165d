#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "controller/net/entrance.h"
#include "controller/net/http_head.h"

namespace net {

/// The entrance of the dashboard's HTTP server: nobody reaches it before the headers of a request. Whoever shows a
/// valid token or session in them is one of the people, and gets a place of theirs. Anybody else may ask too (pages,
/// log in), and gets a place among the strangers. For want of a place the answer is 503.
class HttpGate final : public Entrance {
 public:
  struct Rules {
    std::size_t most_bytes = 0;             // of a request's headers
    std::chrono::milliseconds patience{0};  // with them, from the arrival on
    std::function<bool(const std::string& head)> is_a_persons;
    /// The socket belongs to the callee. `said`: what was read from it.
    std::function<void(int socket, const std::string& said)> hand_over;
  };

  HttpGate(std::shared_ptr<Connections> connections, Rules rules);

 protected:
  std::unique_ptr<FirstWords> listen() const override { return std::make_unique<HttpHead>(rules_.most_bytes); }
  void judge(Guest& guest, Time now) override;
  std::string goodbye(Crowd::Why why) const override;

 private:
  const Rules rules_;
};

}  // namespace net
