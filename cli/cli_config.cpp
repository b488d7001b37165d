#include "cli/cli_config.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <toml++/toml.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>

#include "base/numbers.h"
#include "base/words.h"
#include "cli/client.h"
#include "controller/common/data_folder.h"
#include "spec/jobfile/toml_value.h"
#include "spec/variables.h"

namespace cli {
namespace {

namespace fs = std::filesystem;

// The Python client alone reads http_address.
const std::vector<std::string> kKeys{"address", "http_address", "token_file"};
constexpr std::uintmax_t kMostFileBytes = 64 * 1024;
constexpr std::size_t kMostTokenBytes = 4096;

std::string place(const fs::path& file, const toml::source_region& source) {
  return file.native() + ":" + std::to_string(source.begin.line) + ":" + std::to_string(source.begin.column) + ": ";
}

std::map<std::string, std::string> read_keys(const fs::path& file) {
  toml::table table;
  try {
    table = toml::parse_file(file.native());
  } catch (const toml::parse_error& error) {
    throw Failure(kUsage, place(file, error.source()) + jobfile::syntax_problem(error.description()));
  }
  std::map<std::string, std::string> found;
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    if (std::find(kKeys.begin(), kKeys.end(), name) == kKeys.end()) {
      const auto near = base::nearest(name, kKeys);
      throw Failure(kUsage, place(file, key.source()) + jobfile::shown(name) + ": unknown key, " +
                                (near.empty() ? "want address or token_file (a job file is given to muster submit)"
                                              : "did you mean " + near));
    }
    const auto* text = node.as_string();
    if (text == nullptr || text->get().empty()) {
      throw Failure(kUsage,
                    place(file, node.source()) + name + " \"" + jobfile::shown(node) + "\": want a text in quotes");
    }
    found[name] = text->get();
  }
  return found;
}

/// Makes the path absolute. "~/x" is below HOME; other relative paths start at `folder`.
std::string absolute(const std::string& path, const fs::path& folder, const ConfigPlaces& places) {
  const auto home = places.variable("HOME");
  if (path.starts_with("~/") && home) return (fs::path(*home) / path.substr(2)).native();
  return (folder / path).lexically_normal().native();
}

/// The data folder of the musterd that runs this process as a rank: three folders above that of its attempt
/// (common::DataFolder). nullopt: this is no rank, or no musterd has started it.
std::optional<fs::path> data_folder_of_own_job(const ConfigPlaces& places) {
  const auto attempt = places.variable(spec::variable::kAttemptFolder);
  if (!attempt) return std::nullopt;
  const auto jobs = fs::path(*attempt).parent_path().parent_path();
  std::error_code error;
  if (jobs.filename() != "jobs" || !fs::exists(jobs.parent_path() / "token", error)) return std::nullopt;
  return jobs.parent_path();
}

/// False: another user has the folder, such as that of a musterd whose token a group shares.
bool is_of_this_user(const fs::path& folder) {
  struct stat info {};
  return stat(folder.c_str(), &info) != 0 || info.st_uid == geteuid();
}

/// Refuses a malformed address here. Later it would only be "unreachable".
void check_address(const Setting& address) {
  const auto& text = address.value;
  if (text.starts_with("unix:")) return;
  const auto colon = text.rfind(':');
  const auto port = colon == std::string::npos ? std::string() : text.substr(colon + 1);
  if (colon == 0 || base::whole_number<std::uint16_t>(port).value_or(0) == 0) {
    throw Failure(kUsage, address.source + " \"" + jobfile::shown(text) + "\": want host:port such as 127.0.0.1:7600");
  }
}

/// Why the token file could not be read.
std::string token_problem(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return "it is a folder";
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return std::strerror(errno);
  close(descriptor);
  return "its first line is empty or too long";
}

}  // namespace

Setting usual_data_folder(const ConfigPlaces& places) {
  if (const auto folder = places.variable("XDG_DATA_HOME")) {
    return {(fs::path(*folder) / "muster").native(), "XDG_DATA_HOME"};
  }
  return {absolute("~/.local/share/muster", "/", places), "default"};
}

std::string reached_at(const std::string& address, const common::ReadyFile& ready) {
  for (const auto& [everywhere, own] : {std::pair{"0.0.0.0:", "127.0.0.1:"}, std::pair{"[::]:", "[::1]:"}}) {
    if (!address.starts_with(everywhere)) continue;
    const auto port = address.substr(std::string_view(everywhere).size());
    if (ready.is_of_this_host()) return own + port;
    const auto host = ready.advertised.substr(0, ready.advertised.rfind(':'));
    return (host.empty() || is_loopback(ready.advertised) ? ready.host : host) + ":" + port;
  }
  return address;
}

Config config_of(const common::ReadyFile& ready) {
  const auto folder = ready.file.parent_path();
  const auto source = ready.file.native();
  return {.address = {reached_at(ready.grpc, ready), source},
          .token_file = {common::DataFolder(folder).token().native(), source},
          .token = {},
          .files = {},
          .doubt = {},
          .is_absent = false,
          .data_folder = folder};
}

ConfigPlaces usual_places() {
  ConfigPlaces places;
  places.variable = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (value == nullptr || *value == '\0') return std::nullopt;
    return value;
  };
  places.files.emplace_back("muster.toml");
  if (const auto home = places.variable("HOME")) places.files.push_back(fs::path(*home) / ".config/muster/config.toml");
  places.files.emplace_back("/etc/muster/config.toml");
  return places;
}

Config load_config(const Flags& flags, const ConfigPlaces& places) {
  Config config;
  config.token = places.variable("MUSTER_TOKEN");
  bool is_own_token = false;
  const auto take = [](Setting& setting, std::string value, const std::string& source) {
    if (setting.source.empty()) setting = {std::move(value), source};
  };
  // Takes the token of a data folder and, if there is a musterd.json, the address.
  const auto take_folder = [&](const std::string& folder, const std::string& source, bool named) {
    config.data_folder = folder;
    if (config.address.source.empty()) {
      using Kind = common::Running::Kind;
      const auto running = common::who_runs(folder);
      if (running.kind != Kind::kHere) config.doubt = running.why;
      if (running.ready) {
        take(config.address, reached_at(running.ready->grpc, *running.ready), running.ready->file.native());
        const bool is_reached_there = running.kind == Kind::kElsewhere && !is_loopback(config.address.value);
        config.is_absent = running.kind != Kind::kHere && !is_reached_there;
      } else if (named && running.kind == Kind::kNone) {
        config.doubt = "there is no " + folder + "/musterd.json, so no musterd runs on that folder (" + source + ")";
      }
    }
    take(config.token_file, common::DataFolder(folder).token().native(), source);
    is_own_token = is_own_token || (config.token_file.source == source && is_of_this_user(folder));
  };
  std::error_code gone;
  const auto here = fs::current_path(gone);
  if (gone) throw Failure(kUsage, std::string(kNoWorkingFolder));
  if (flags.address) take(config.address, *flags.address, "--address");
  if (flags.token_file) {
    take(config.token_file, absolute(*flags.token_file, here, places), "--token-file");
    config.token.reset();
  }
  if (const auto value = places.variable("MUSTER_ADDRESS")) take(config.address, *value, "MUSTER_ADDRESS");
  if (const auto value = places.variable("MUSTER_TOKEN_FILE")) {
    take(config.token_file, absolute(*value, here, places), "MUSTER_TOKEN_FILE");
  }
  const auto named_folder = places.variable("MUSTER_DATA_FOLDER");
  if (named_folder) take_folder(absolute(*named_folder, here, places), "MUSTER_DATA_FOLDER", true);
  const auto job = named_folder ? std::nullopt : data_folder_of_own_job(places);
  if (job) {
    // The addresses in musterd.json are those on musterd's own machine.
    const auto ready = common::read_ready_file(*job);
    const bool is_here = ready && ready->is_of_this_host();
    const auto told = places.variable(spec::variable::kController);
    if (!is_here && ready && !ready->advertised.empty()) {
      take(config.address, ready->advertised, ready->file.native());
    } else if (told && !is_here) {
      take(config.address, *told, spec::variable::kController);
    }
    take_folder(job->native(), spec::variable::kAttemptFolder, true);
  }
  for (const auto& file : places.files) {
    std::error_code error;
    if (!fs::is_regular_file(file, error)) continue;
    if (fs::file_size(file, error) > kMostFileBytes) {
      throw Failure(kUsage, file.native() + ": larger than 64 KiB; this is not a configuration of muster");
    }
    config.files.push_back(file);
    for (const auto& [key, value] : read_keys(file)) {
      if (key == "address") take(config.address, value, file.native());
      if (key == "token_file") {
        take(config.token_file, absolute(value, fs::absolute(file).parent_path(), places), file.native());
      }
    }
  }
  if (!named_folder && !job) {
    const auto folder = usual_data_folder(places);
    take_folder(folder.value, folder.source, false);
  }
  if (config.address.source.empty()) {
    take(config.address, "127.0.0.1:7600", "default");
    config.is_absent = is_own_token && !config.token;
  }
  check_address(config.address);
  return config;
}

std::string read_token(const Config& config) {
  if (config.token) return *config.token;
  const auto& [path, source] = config.token_file;
  std::ifstream in(path);
  std::string token;
  if (!in || !std::getline(in, token) || token.empty() || token.size() > kMostTokenBytes) {
    throw Failure(kUnreachable, "cannot read the token from " + path + " (" + source + "): " + token_problem(path) +
                                    "; musterd writes it at its first start (muster up starts one of your own); name "
                                    "its file with --token-file, or put the token into MUSTER_TOKEN");
  }
  while (!token.empty() && (token.back() == '\r' || token.back() == ' ')) token.pop_back();
  return token;
}

bool is_loopback(const std::string& address) {
  const auto host = address.substr(0, address.rfind(':'));
  return host == "localhost" || host.starts_with("127.") || host == "[::1]" || address.starts_with("unix:");
}

}  // namespace cli
