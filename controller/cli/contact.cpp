#include "cli/contact.h"

#include <algorithm>
#include <iostream>

namespace cli {
namespace {

constexpr std::chrono::milliseconds kFirstWait{200};
constexpr std::chrono::milliseconds kLongestWait{2000};

}  // namespace

Contact::Contact(Client& client, std::optional<Clock::time_point> deadline)
    : client_(client), deadline_(deadline), wait_(kFirstWait) {
  Interrupts::instance().gently();
}

bool Contact::settle(const grpc::Status& status) {
  if (status.ok()) return true;
  if (!is_lost_contact(status)) throw client_.failure(status);
  if (!lost_) {
    std::cerr << "muster: lost contact with the controller at " << client_.address()
              << "; jobs go on without it. Reconnecting...\n";
  }
  lost_ = true;
  return pause();
}

bool Contact::pause() {
  auto time = wait_;
  wait_ = std::min(wait_ * 2, kLongestWait);
  if (deadline_) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(*deadline_ - Clock::now());
    time = std::clamp(left, std::chrono::milliseconds(0), time);
  }
  return Interrupts::instance().sleep(time) && !out_of_time();
}

void Contact::regained() {
  if (lost_) std::cerr << "muster: the controller is back\n";
  lost_ = false;
  wait_ = kFirstWait;
}

StreamEnd Contact::stopped() const {
  return Interrupts::instance().requested() ? StreamEnd::kInterrupted : StreamEnd::kTimedOut;
}

}  // namespace cli
