#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <sstream>

#include "base/command.h"
#include "cli/cli_command.h"

namespace cli {
namespace {

namespace fs = std::filesystem;

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

struct DashboardOptions {
  bool open = false, json = false;
};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Writes a page that redirects to the link and that only this user can read. The link holds the token, and every user
/// of this machine can read command lines.
fs::path write_page(const std::string& link) {
  auto folder = variable("XDG_RUNTIME_DIR");
  if (folder.empty()) {
    folder = (fs::temp_directory_path() / "muster-dashboard-XXXXXX").native();
    if (mkdtemp(folder.data()) == nullptr) throw Failure(kUsage, "cannot make a folder for a page in " + folder);
  }
  const auto page = fs::path(folder) / "muster-dashboard.html";
  const auto text =
      "<!doctype html><meta http-equiv=\"refresh\" content=\"0; url=" + link + "\"><title>muster</title>\n";
  std::error_code ignored;
  fs::remove(page, ignored);
  const int fd = open(page.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  const bool written = fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (fd >= 0) close(fd);
  if (!written) throw Failure(kUsage, "cannot write " + page.native() + "; open the link yourself");
  return page;
}

/// Starts the browser and does not wait for it.
void open_in_browser(const std::string& link) {
  if (variable("DISPLAY").empty() && variable("WAYLAND_DISPLAY").empty()) {
    throw Failure(kUsage,
                  "--open needs a desktop, and neither DISPLAY nor WAYLAND_DISPLAY is set: open the link yourself");
  }
  const auto opener = base::find_program("xdg-open");
  if (opener.empty()) throw Failure(kUsage, "--open needs xdg-open (package xdg-utils): open the link yourself");
  const auto page = write_page(link);
  const pid_t child = fork();
  if (child == 0) {
    setsid();
    const int nothing = open("/dev/null", O_RDWR);
    for (const int fd : {0, 1, 2}) dup2(nothing, fd);
    execl(opener.c_str(), opener.c_str(), page.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    throw Failure(kUsage, opener.native() + " could not open a browser: open the link yourself");
  }
}

int run_dashboard(Session& session, const DashboardOptions& options) {
  auto& client = session.client();
  const auto status = client.call(&AdminStub::Status, muster::v1::StatusRequest());
  const auto link = dashboard_link(client, status);
  if (options.json) {
    print_json(with_version({{"link", link.link}, {"tunnel", link.tunnel}}));
  } else {
    std::cout << link.link << "\n";
    tell_tunnel(link);
  }
  std::cout << std::flush;
  if (!options.open) return kSuccess;
  if (!link.tunnel.empty()) {
    throw Failure(kUsage,
                  "--open can't reach the browser of your own machine: run the ssh line there, then open the link");
  }
  open_in_browser(link.link);
  return kSuccess;
}

}  // namespace

DashboardLink dashboard_link(const DashboardFacts& facts) {
  auto dashboard = host_and_port(address_of(facts.url));
  const auto controller = host_and_port(facts.controller);
  const bool here = is_loopback(facts.controller);
  const bool everywhere = dashboard.host == "0.0.0.0" || dashboard.host == "[::]";
  if (everywhere) dashboard.host = here ? "127.0.0.1" : controller.host;
  DashboardLink link;
  link.link = "http://" + dashboard.host + ":" + dashboard.port + "/#token=" + facts.token;
  const auto server = ssh_server(facts.ssh_connection);
  if (facts.is_on_node && !here && !server.host.empty()) {
    link.link = "http://127.0.0.1:" + dashboard.port + "/#token=" + facts.token;
    link.listens_on = "the cluster's network";
    link.tunnel = tunnel_to(dashboard, facts.user, server);
    return link;
  }
  if (!is_loopback(dashboard.host + ":" + dashboard.port)) return link;
  if (!here) {
    link.listens_on = controller.host;
    link.tunnel = tunnel_to(dashboard, facts.user, {controller.host, ""});
  } else if (!server.host.empty()) {
    link.listens_on = "this machine";
    link.tunnel = tunnel_to(dashboard, facts.user, server);
  }
  return link;
}

DashboardLink dashboard_link(Client& client, const muster::v1::StatusResponse& status) {
  const auto ready = common::read_ready_file(client.config().data_folder);
  return dashboard_link({status.dashboard_url(), client.token(), client.address(), variable("SSH_CONNECTION"),
                         user_name(), ready && !ready->slurm_job.empty()});
}

void tell_tunnel(const DashboardLink& link) {
  if (link.tunnel.empty()) return;
  std::cerr << "muster: the dashboard listens on " << link.listens_on
            << " only; first run this on your own machine, and leave it running:\n"
            << "  " << link.tunnel << "\n";
}

void define_dashboard(CLI::App& app, Session& session) {
  auto options = add_action<DashboardOptions>(app, session, run_dashboard);
  app.add_flag("--open", options->open, "Also open it in this machine's browser");
  app.add_flag("--json", options->json, "As an object {link, tunnel}; tunnel is empty if none is needed");
}

}  // namespace cli
