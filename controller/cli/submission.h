#pragma once

#include <chrono>
#include <string>

#include "cli/follow.h"

namespace cli {

/// How long a submission waits for a controller that restarts.
inline constexpr std::chrono::seconds kPatience{20};

/// A unique id for a submission: 32 hexadecimal digits.
std::string fresh_request_id();

/// What happened in a submission's tries so far.
struct Tries {
  Contact::Clock::time_point deadline;
  bool told = false;            // the person was told that muster tries again
  bool maybe_accepted = false;  // an answer was lost, so the controller may have accepted the call
};

/// Handles a failed try: waits a moment, or throws a failure that another try cannot repair.
void ask_again(Client& client, const grpc::Status& status, Tries& tries);

/// Repeats the call until there is an answer. The request id keeps a lost answer from becoming a second job. Each try
/// may take `limit`. Throws a Failure after kPatience.
template <typename Request, typename Response>
Response submit_surely(Client& client, grpc::Status (JobStub::*method)(grpc::ClientContext*, const Request&, Response*),
                       const Request& request, std::chrono::seconds limit = Client::kCallLimit) {
  Tries tries{Contact::Clock::now() + kPatience};
  connect_patiently(client, kPatience);
  while (true) {
    Response response;
    const auto status = client.try_call(method, request, &response, limit);
    if (status.ok()) return response;
    ask_again(client, status, tries);
  }
}

}  // namespace cli
