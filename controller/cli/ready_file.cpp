#include "cli/ready_file.h"

#include <signal.h>

#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>

#include "os/host_name.h"

namespace cli {
namespace {

constexpr std::size_t kMostReadyBytes = 4096;

/// A client on the same machine reaches a daemon that listens on all addresses by the loopback address.
std::string reached_at(const std::string& address) {
  for (const auto& [everywhere, own] : {std::pair{"0.0.0.0:", "127.0.0.1:"}, std::pair{"[::]:", "[::1]:"}}) {
    if (address.starts_with(everywhere)) return own + address.substr(std::string_view(everywhere).size());
  }
  return address;
}

std::string text_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

std::optional<ReadyFile> read_ready_file(const std::filesystem::path& data_folder) {
  ReadyFile ready;
  ready.file = data_folder / "musterd.json";
  std::ifstream in(ready.file);
  std::string text(kMostReadyBytes, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  const auto object = nlohmann::json::parse(text, nullptr, false);
  if (!object.is_object()) return std::nullopt;
  ready.grpc = reached_at(text_of(object, "grpc"));
  ready.http = reached_at(text_of(object, "http"));
  ready.host = text_of(object, "host");
  if (const auto pid = object.find("pid"); pid != object.end() && pid->is_number_integer()) ready.pid = *pid;
  if (ready.grpc.empty()) return std::nullopt;
  return ready;
}

std::string stale_text(const ReadyFile& ready) {
  if (!ready.host.empty() && ready.host != os::host_name()) {
    return ready.file.native() + " belongs to a musterd on host " + ready.host + ", and this is " + os::host_name();
  }
  if (ready.pid > 0 && kill(static_cast<pid_t>(ready.pid), 0) != 0 && errno == ESRCH) {
    return ready.file.native() + " was left by process " + std::to_string(ready.pid) + ", which has ended";
  }
  return {};
}

}  // namespace cli
