#include "daemon/remembered_ports.h"

#include "os/durable_file.h"

namespace musterd {

RememberedPorts::RememberedPorts(std::filesystem::path file) : file_(std::move(file)) {
  known_ = nlohmann::json::parse(os::read_small_file(file_), nullptr, false);
  if (!known_.is_object()) known_ = nlohmann::json::object();
}

void RememberedPorts::save() const {
  os::write_file_durably(file_, known_.dump() + "\n");
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
