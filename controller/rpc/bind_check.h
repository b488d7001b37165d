#pragma once

#include <string>

namespace rpc {

/// Why "host:port" can't be listened on, with the remedy; empty if it can. Binds every address the host resolves to and
/// lets go again: gRPC itself is content when one of several can be bound and does not say what was wrong.
std::string why_not_bindable(const std::string& address);

}  // namespace rpc
