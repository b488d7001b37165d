#pragma once
#include <chrono>
#include <memory>
#include <string>

#include "base/fd.h"

struct addrinfo;

/// Connections over TCP between ranks. All functions throw c10::Error with address and reason.
namespace fsdp::net {

using Deadline = std::chrono::steady_clock::time_point;

/// True if one of the `events` of poll() comes until the deadline.
bool is_ready(int fd, short events, Deadline deadline);

/// The addresses of a host. An error begins with `whose`.
using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;
Addresses resolve(const std::string& host, const std::string& port, const std::string& whose);
/// A socket that listens on the address. None: errno says why. `reuses`: the port may have been another socket's a
/// moment ago.
base::Fd listen_on(const addrinfo& address, bool reuses);
/// Where peers connect to, by MeshOptions::interface_address: empty means loopback.
inline std::string address_of(const std::string& interface_address) {
  return interface_address.empty() ? "127.0.0.1" : interface_address;
}
/// A socket that listens on any free port of `host`, a name or address of this machine.
base::Fd listen_at(const std::string& host);
/// The port of a listening socket. An error begins with `whose`.
std::string port_of(int fd, const std::string& whose);
base::Fd connect_to(const std::string& host, const std::string& port, std::chrono::milliseconds timeout);
/// Short messages leave at once, and a connection to a node that is gone ends some day.
void set_options(int fd);

}  // namespace fsdp::net
