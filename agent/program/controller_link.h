#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "agent/rank/meeting.h"
#include "muster/v1/rank_service.pb.h"

namespace agent::program {

/// The link by which an agent talks to the controller, and hears from it. A request tells of one rank, which its key
/// names; the controller is told the newest request of each rank.
class ControllerLink {
 public:
  virtual ~ControllerLink() = default;

  /// From here on the controller is told this of the rank. Of several ranks it hears in the order of these calls.
  virtual void tell(const muster::v1::TaskRequest& request) = 0;
  /// Tells the controller this without hurry: with the next request of the rank that is due anyway.
  virtual void tell_later(const muster::v1::TaskRequest& request) = 0;
  /// From here on the controller is told nothing of the rank, until the next tell().
  virtual void hold(std::uint32_t rank) = 0;
  /// Waits until the controller has heard the last request, at most `patience`; false if it has not.
  virtual bool flush(std::chrono::milliseconds patience) = 0;
  /// How long the controller has been owing an answer; 0: it owes none.
  virtual std::chrono::milliseconds unheard_for() const = 0;
  /// Where rank 0 listens: rank 0 offers `mine`, the others ask with an empty text. Blocks until the answer is known,
  /// as long as there is patience. Empty if it is not, or if the attempt is over.
  virtual std::string meet(const std::string& mine, rank::MeetingPatience patience) = 0;
  /// Gives the controller the rank's stack. Blocks for a few seconds at most; false if the controller has not taken it.
  virtual bool give_stack(std::uint64_t number, std::uint32_t rank, const std::string& text) = 0;
};

/// Called from a thread of the link, whenever the controller wants something else than before, or another stack.
using OnDirective = std::function<void(const muster::v1::TaskResponse&)>;

/// `first` tells of the agent's first rank.
using ConnectToController =
    std::function<std::unique_ptr<ControllerLink>(const rank::ControllerPlace& controller, const std::string& token,
                                                  const muster::v1::TaskRequest& first, OnDirective)>;

/// A ConnectToController: the link by gRPC. It tells the controller news at once, and at the controller's interval the
/// newest request of each rank. It does so on one stream, which is opened anew when it breaks. Thread-safe.
std::unique_ptr<ControllerLink> link_by_grpc(const rank::ControllerPlace& controller, const std::string& token,
                                             const muster::v1::TaskRequest& first, OnDirective on_directive);

}  // namespace agent::program
