#pragma once

#include <mutex>
#include <optional>

#include "controller/common/outcome.h"
#include "controller/service/parts.h"
#include "muster/v1/admin_service.pb.h"

namespace service {

/// An admin's order that no attempt starts, which the store keeps over restarts. Thread-safe.
class Draining {
 public:
  /// Throws store::Error.
  explicit Draining(store::Store& store) : store_(store), order_(store.drain()) {}

  std::optional<core::Drain> order() const {
    const std::lock_guard lock(mutex_);
    return order_;
  }
  /// Durable and audited when it returns. A second order replaces the reason and its user, and keeps the time.
  common::Outcome<muster::v1::DrainView> begin(const Parts& parts, const muster::v1::DrainRequest& request);
  common::Outcome<muster::v1::DrainView> end(const Parts& parts, const muster::v1::ResumeRequest& request);
  /// The order, and the attempts that it leaves alone.
  muster::v1::DrainView view(const jobs::EventLog& event_log) const;

  static constexpr std::size_t kMostReason = 200;  // bytes

 private:
  common::Outcome<muster::v1::DrainView> change(const Parts& parts, std::optional<core::Drain> order,
                                                const std::string& user);

  store::Store& store_;
  std::mutex changing_;
  mutable std::mutex mutex_;
  std::optional<core::Drain> order_;
};

}  // namespace service
