#include "controller/musterd/own_ports.h"

#include <unistd.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/durable_file.h"
#include "base/numbers.h"
#include "base/usage_error.h"

namespace musterd {
namespace {

/// How many ports a user has: gRPC and dashboard.
constexpr std::uint32_t kPortsOfUser = 2;

}  // namespace

PortRange parse_port_range(const char* flag, const std::string& text) {
  const auto dash = text.find('-');
  const auto number = [](std::string_view word) { return base::whole_number<std::uint16_t>(word).value_or(0); };
  const auto low = number(std::string_view(text).substr(0, dash));
  const auto high = dash == std::string::npos ? low : number(std::string_view(text).substr(dash + 1));
  if (low == 0 || high < low) {
    throw base::UsageError(std::string(flag) + " \"" + text + "\": want LOW-HIGH such as " + kUsualPorts +
                           ", of ports from 1 to 65535");
  }
  return {low, high};
}

std::vector<std::uint16_t> PortRange::in_order(std::uint32_t user, std::uint32_t part) const {
  const std::uint32_t size = std::uint32_t{high} - low + 1;
  const auto start = static_cast<std::uint32_t>((std::uint64_t{user} * kPortsOfUser + part) % size);
  std::vector<std::uint16_t> ports(std::min<std::size_t>(size, kMostTries));
  for (std::uint32_t i = 0; i < ports.size(); ++i) ports[i] = static_cast<std::uint16_t>(low + (start + i) % size);
  return ports;
}

RememberedPorts::RememberedPorts(std::filesystem::path file) : file_(std::move(file)) {
  known_ = nlohmann::json::parse(base::read_small_file(file_), nullptr, false);
  if (!known_.is_object()) known_ = nlohmann::json::object();
}

void RememberedPorts::save() const {
  base::write_file_durably(file_, known_.dump() + "\n");
}

std::vector<std::uint16_t> RememberedPorts::ports_for(const char* name, const PortChoice& choice) const {
  const auto known = known_port(name);  // also when it isn't wanted: it warns of a damaged file
  if (choice.address.port != 0) return {choice.address.port};
  std::vector<std::uint16_t> ports{0};
  if (choice.is_auto) ports = choice.range.in_order(::geteuid(), std::string_view(name) == "http" ? 1 : 0);
  if (known != 0) ports.insert(ports.begin(), known);
  return ports;
}

std::uint16_t RememberedPorts::known_port(const char* name) const {
  const auto entry = known_.find(name);
  if (entry == known_.end()) return 0;
  const auto port = entry->is_number_integer() ? entry->get<std::int64_t>() : 0;
  if (port > 0 && port <= 65535) return static_cast<std::uint16_t>(port);
  spdlog::warn("{}: \"{}\" is {}, which is no port; any free one is taken", file_.string(), name, entry->dump());
  return 0;
}

}  // namespace musterd
