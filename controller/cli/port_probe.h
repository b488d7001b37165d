#pragma once

#include <string>

namespace cli {

/// True if HOST:PORT answers HTTP/1, as the dashboard does and gRPC does not. Takes at most one second.
bool speaks_http(const std::string& address);

}  // namespace cli
