#pragma once

#include <string>

namespace cli {

/// How a person opens the dashboard.
struct DashboardLink {
  std::string link;        // opening it logs in
  std::string tunnel;      // the ssh command to run on the person's machine; empty: no tunnel is needed
  std::string listens_on;  // with a tunnel: the only machine that can reach the dashboard
};

struct DashboardFacts {
  std::string url;  // from musterd: "http://127.0.0.1:7601/"
  std::string token;
  std::string controller;      // the controller's HOST:PORT
  std::string ssh_connection;  // SSH_CONNECTION, "CLIENT PORT SERVER PORT"; empty: no ssh
  std::string user;
};

/// Pure. Both ends of a tunnel have the dashboard's port.
DashboardLink dashboard_link(const DashboardFacts& facts);

}  // namespace cli
