#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "controller/common/clock.h"

namespace musterd {

/// The answer of this machine's name service about a host.
struct NameAnswer {
  enum class Kind {
    kKnown,
    kUnknown,           // there is no machine of that name
    kNone,              // it does not answer now: that says nothing of the name
    kThisMachineAlone,  // it has loopback addresses and no others
  };
  Kind kind = Kind::kKnown;
  std::string detail = {};  // the service's own words, or the loopback address
};

/// The address by which ranks look for musterd, judged from this machine. Thread-safe.
class Advertised {
 public:
  using Resolve = std::function<NameAnswer(const std::string& host)>;

  /// `clock` must outlive this.
  explicit Advertised(const common::Clock& clock, Resolve resolve = ask_name_service);

  /// `address`: "host:port". Throws UsageError if it is none, or has port 0.
  void set(const std::string& address);
  /// Empty before set().
  std::string address() const {
    const std::lock_guard lock(mutex_);
    return address_;
  }
  /// The fault of the address, with the remedy; empty: none that can be seen from here. Asks the name service once in
  /// kAgain, since names change and a name service comes back.
  std::string problem() { return look().problem; }
  /// A possible fault of the address: a name that is a loopback address here, as Debian writes the machine's own name
  /// into /etc/hosts. Other nodes may know another address by that name. Empty: nothing. Asks as problem() does.
  std::string doubt() { return look().doubt; }
  /// problem(), else doubt().
  std::string problem_or_doubt() {
    const auto found = look();
    return found.problem.empty() ? found.doubt : found.problem;
  }

  static NameAnswer ask_name_service(const std::string& host);
  static constexpr core::Millis kAgain{60'000};

 private:
  struct Found {
    std::string problem, doubt;
  };
  Found look();
  static Found judge(const std::string& address, const std::string& host, const NameAnswer& answer);

  const common::Clock& clock_;
  const Resolve resolve_;
  mutable std::mutex mutex_;
  std::string address_, host_;
  Found found_;
  std::optional<core::Millis> asked_at_;
};

}  // namespace musterd
