#pragma once

#include <chrono>
#include <string>

#include "cli/follow.h"

namespace cli {

/// A controller may take this long to restart before a submission gives up.
inline constexpr std::chrono::seconds kPatience{20};

/// Unique to a submission: 32 hexadecimal digits.
std::string fresh_request_id();

/// What became of a submission's tries so far.
struct Tries {
  Contact::Clock::time_point deadline;
  bool told = false;            // that it is asked again
  bool maybe_accepted = false;  // an answer was lost
};

/// After a failed try: waits a moment, or throws what trying again does not mend.
void ask_again(Client& client, const grpc::Status& status, Tries& tries);

/// Asks until there is an answer: the request id makes sure that a lost answer does not become a second job. A Failure
/// after kPatience; each try may take `limit`.
template <typename Request, typename Response>
Response submit_surely(Client& client,
                       grpc::Status (muster::v1::JobService::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                            Response*),
                       const Request& request, std::chrono::seconds limit = Client::kCallLimit) {
  Tries tries{Contact::Clock::now() + kPatience};
  connect_patiently(client, kPatience);
  while (true) {
    Response response;
    const auto status = client.try_call(client.jobs(), method, request, &response, limit);
    if (status.ok()) return response;
    ask_again(client, status, tries);
  }
}

}  // namespace cli
