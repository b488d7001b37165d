#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"

namespace musterd {

/// The address by which ranks look for musterd, judged from this machine. Thread-safe.
class Advertised {
 public:
  /// Why there is no machine of that name; empty: there is one, or the name service has not answered in time.
  using Resolve = std::function<std::string(const std::string& host)>;

  /// `clock` must outlive this.
  explicit Advertised(const base::Clock& clock, Resolve resolve = ask_name_service);

  /// `address`: "host:port". Throws UsageError if it is none, or has port 0.
  void set(const std::string& address);
  /// Empty before set().
  std::string address() const;
  /// What is wrong with the address, with the remedy; empty: nothing that can be seen from here. Asks the name service
  /// once in kAgain, since names change.
  std::string problem();

  static std::string ask_name_service(const std::string& host);
  static constexpr core::Millis kAgain{60'000};

 private:
  const base::Clock& clock_;
  const Resolve resolve_;
  mutable std::mutex mutex_;
  std::string address_, host_, problem_;
  std::optional<core::Millis> asked_at_;
};

}  // namespace musterd
