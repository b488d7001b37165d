#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace agent::rank {

/// A TCP address: a host name or a numeric address without brackets, and a port in 1..65535.
struct Endpoint {
  std::string host;
  std::uint16_t port = 0;

  bool operator==(const Endpoint&) const = default;
};

/// "host:port"; a host that holds a colon (IPv6) comes in brackets.
std::string to_string(const Endpoint& endpoint);

/// Reads "host:port" or "[v6]:port". Throws std::invalid_argument that quotes the text and says what is wanted.
Endpoint parse_endpoint(std::string_view text);

/// This machine's numeric address on the route towards `peer`; 127.0.0.1 when there is no route or `peer` does not
/// resolve. Sends nothing. Other nodes can reach it even where node names don't resolve.
std::string own_address_towards(const Endpoint& peer);

}  // namespace agent::rank
