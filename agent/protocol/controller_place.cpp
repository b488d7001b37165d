#include "agent/protocol/controller_place.h"

#include <exception>
#include <nlohmann/json.hpp>

#include "base/durable_file.h"

namespace agent::protocol {

std::string advertised_in(const std::filesystem::path& ready_file) {
  constexpr std::size_t kMostBytes = 4096;
  try {
    const auto object = nlohmann::json::parse(base::read_small_file(ready_file, kMostBytes));
    return object.value(kAdvertised, std::string());
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace agent::protocol
