#include "cli/submission.h"

#include <iostream>
#include <random>

namespace cli {

std::string fresh_request_id() {
  std::random_device random;
  std::string id;
  for (int i = 0; i < 4; ++i) {
    char part[9];
    std::snprintf(part, sizeof part, "%08x", static_cast<unsigned>(random()));
    id += part;
  }
  return id;
}

void ask_again(Client& client, const grpc::Status& status, Tries& tries) {
  const auto failure = client.failure(status);
  const bool overloaded = is_overloaded(status), unchanged = is_unchanged(status);
  if (!unchanged && !is_lost_contact(status)) throw failure;
  if (!unchanged && !overloaded) tries.maybe_accepted = true;
  if (Contact::Clock::now() >= tries.deadline) {
    throw Failure(
        failure.exit(),
        failure.what() + std::string(tries.maybe_accepted
                                         ? ". It is not known whether the submission was accepted: see muster list"
                                         : ". The submission was not accepted"));
  }
  if (!tries.told) {
    std::cerr << "muster: "
              << (unchanged    ? status.error_message()
                  : overloaded ? "the controller has too many calls at the same time"
                               : "the answer to the submission was lost")
              << "; trying again\n";
  }
  tries.told = true;
  Interrupts::instance().sleep(std::chrono::milliseconds(250));
  client.connect();
}

}  // namespace cli
