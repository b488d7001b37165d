#include "controller/net/listen_address.h"

#include <boost/asio/ip/address.hpp>
#include <charconv>
#include <stdexcept>

namespace net {

std::string ListenAddress::text() const {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

bool ListenAddress::is_loopback() const {
  boost::system::error_code not_numeric;
  const auto address = boost::asio::ip::make_address(host, not_numeric);
  return host == "localhost" || (!not_numeric && address.is_loopback());
}

ListenAddress parse_listen_address(const std::string& text) {
  const auto fail = [&] {
    return std::invalid_argument("\"" + text +
                                 "\": want host:port such as 127.0.0.1:7600; port 0 lets the system choose");
  };
  const auto colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) throw fail();
  ListenAddress out;
  out.host = text.substr(0, colon);
  const bool bracketed = out.host.front() == '[' && out.host.back() == ']';
  if (bracketed) out.host = out.host.substr(1, out.host.size() - 2);
  if (out.host.empty() || (!bracketed && out.host.find(':') != std::string::npos)) throw fail();
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + colon + 1, end, out.port);
  if (parsed.ec != std::errc{} || parsed.ptr != end) throw fail();
  return out;
}

}  // namespace net
