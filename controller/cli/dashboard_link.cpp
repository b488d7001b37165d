#include "cli/dashboard_link.h"

#include <sstream>

#include "cli/config.h"

namespace cli {
namespace {

struct HostPort {
  std::string host, port;
};

HostPort host_and_port(const std::string& address) {
  const auto colon = address.rfind(':');
  return {address.substr(0, colon), colon == std::string::npos ? "" : address.substr(colon + 1)};
}

/// The address in a URL: "127.0.0.1:7601" for "http://127.0.0.1:7601/".
std::string address_of(std::string url) {
  if (const auto scheme = url.find("://"); scheme != std::string::npos) url.erase(0, scheme + 3);
  return url.substr(0, url.find('/'));
}

/// The machine on which the ssh shell runs: its address, and the port if it is not ssh's usual one.
HostPort ssh_server(const std::string& connection) {
  std::istringstream words(connection);
  std::string client, client_port;
  HostPort server;
  words >> client >> client_port >> server.host >> server.port;
  return server;
}

std::string tunnel_to(const HostPort& dashboard, const std::string& user, const HostPort& server) {
  const auto forward = dashboard.port + ":" + dashboard.host + ":" + dashboard.port;
  const auto port = server.port.empty() || server.port == "22" ? "" : "-p " + server.port + " ";
  return "ssh -N -L " + forward + " " + port + user + "@" + server.host;
}

}  // namespace

DashboardLink dashboard_link(const DashboardFacts& facts) {
  auto dashboard = host_and_port(address_of(facts.url));
  const auto controller = host_and_port(facts.controller);
  const bool here = is_loopback(facts.controller);
  const bool everywhere = dashboard.host == "0.0.0.0" || dashboard.host == "[::]";
  if (everywhere && !here) dashboard.host = controller.host;
  if (everywhere && here) dashboard.host = "127.0.0.1";
  DashboardLink link;
  link.link = "http://" + dashboard.host + ":" + dashboard.port + "/#token=" + facts.token;
  if (!is_loopback(dashboard.host + ":" + dashboard.port)) return link;
  if (!here) {
    link.listens_on = controller.host;
    link.tunnel = tunnel_to(dashboard, facts.user, {controller.host, ""});
  } else if (const auto server = ssh_server(facts.ssh_connection); !server.host.empty()) {
    link.listens_on = "this machine";
    link.tunnel = tunnel_to(dashboard, facts.user, server);
  }
  return link;
}

}  // namespace cli
