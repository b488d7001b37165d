#pragma once

#include <string>

namespace cli {

/// How a person gets from the command line into the dashboard.
struct DashboardLink {
  std::string link;        // logs in by itself
  std::string tunnel;      // the ssh command for the person's own machine; empty: the link works as it is
  std::string listens_on;  // the machine that alone reaches the dashboard, where there is a tunnel
};

struct DashboardFacts {
  std::string url;  // as musterd tells it: "http://127.0.0.1:7601/"
  std::string token;
  std::string controller;      // HOST:PORT that this command line talks to
  std::string ssh_connection;  // "CLIENT PORT SERVER PORT" of the shell; empty: no ssh
  std::string user;
};

/// Pure. The dashboard's port is the same on both ends of a tunnel.
DashboardLink dashboard_link(const DashboardFacts& facts);

}  // namespace cli
