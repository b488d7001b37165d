#pragma once

#include <string>

namespace cli {

/// True if HOST:PORT answers HTTP/1, as the dashboard does and gRPC never. Takes a second at most.
bool speaks_http(const std::string& address);

}  // namespace cli
