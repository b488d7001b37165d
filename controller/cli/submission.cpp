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

void ask_again(Client& client, const grpc::Status& status, Contact::Clock::time_point deadline, bool told) {
  if (!is_lost_contact(status)) throw client.failure(status);
  if (Contact::Clock::now() >= deadline) {
    throw Failure(kUnreachable, std::string(client.failure(status).what()) +
                                    ". Whether the submission was accepted is not known: see muster list");
  }
  if (!told) {
    std::cerr << (is_overloaded(status) ? "muster: the controller has too many calls at once; asking again\n"
                                        : "muster: the answer to the submission was lost; asking again\n");
  }
  Interrupts::instance().sleep(std::chrono::milliseconds(250));
  client.connect();
}

}  // namespace cli
