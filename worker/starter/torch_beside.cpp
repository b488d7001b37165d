#include "worker/starter/torch_beside.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <optional>
#include <string_view>
#include <utility>

#include "base/usage_error.h"
#include "base/words.h"

namespace starter {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPackage = "muster_hpc_worker";

/// Two numbers of a version or of a Python's folder: {2, 11} of "2.11.0+cu130".
using Numbers = std::pair<int, int>;

std::optional<Numbers> numbers_of(std::string_view text) {
  Numbers found{0, 0};
  std::size_t at = 0;
  const auto read = [&](int& number) {
    const auto begin = at;
    for (; at < text.size() && at < begin + 6 && std::isdigit(static_cast<unsigned char>(text[at])) != 0; ++at)
      number = number * 10 + (text[at] - '0');
    return at > begin;
  };
  if (!read(found.first) || at == text.size() || text[at++] != '.' || !read(found.second)) return std::nullopt;
  return found;
}

std::string text_of(const Numbers& numbers) {
  return std::to_string(numbers.first) + "." + std::to_string(numbers.second);
}

/// The folders of packages below a prefix, those of the newest Python first. `python`: of this one alone, "python3.11".
std::vector<fs::path> sites_below(const fs::path& prefix, const std::string& python = "") {
  std::vector<std::pair<Numbers, fs::path>> found;
  for (const char* lib : {"lib", "lib64", "local/lib"}) {
    std::error_code error;
    if (fs::is_symlink(prefix / lib, error)) continue;  // lib64 of a virtual environment is lib
    for (fs::directory_iterator at(prefix / lib, error), end; !error && at != end; at.increment(error)) {
      const auto name = at->path().filename().native();
      if (!name.starts_with("python3")) continue;
      // Debian's own packages are those of every Python 3.
      if (!python.empty() && name != python && name != "python3") continue;
      for (const char* packages : {"site-packages", "dist-packages"}) {
        const auto site = at->path() / packages;
        if (fs::is_directory(site, error)) found.emplace_back(numbers_of(name.substr(6)).value_or(Numbers{0, 0}), site);
      }
    }
  }
  std::ranges::stable_sort(found, [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<fs::path> sites;
  for (auto& [version, site] : found) sites.push_back(std::move(site));
  return sites;
}

/// A value of pyvenv.cfg, which has lines "key = value"; empty: there is none.
std::string value_of(const fs::path& pyvenv, std::string_view key) {
  std::ifstream file(pyvenv);
  for (std::string line; std::getline(file, line);) {
    const auto equals = line.find('=');
    if (equals != std::string::npos && base::trimmed(line.substr(0, equals)) == key)
      return std::string(base::trimmed(line.substr(equals + 1)));
  }
  return {};
}

/// The folders in which a Python that has this one looks for packages, this one first.
std::vector<fs::path> sites_seen_from(const fs::path& site, const fs::path& prefix, const fs::path& home) {
  std::vector<fs::path> sites{site};
  const auto add = [&](const std::vector<fs::path>& more) {
    for (const auto& one : more)
      if (std::ranges::find(sites, one) == sites.end()) sites.push_back(one);
  };
  const auto python = site.parent_path().filename().native();
  if (!python.starts_with("python3")) return sites;  // a folder of --target
  const auto pyvenv = prefix / "pyvenv.cfg";
  std::error_code error;
  const bool is_virtual = fs::exists(pyvenv, error);
  if (is_virtual && value_of(pyvenv, "include-system-site-packages") != "true") return sites;
  if (!home.empty()) add(sites_below(home / ".local", python));
  if (is_virtual) {
    const fs::path below(value_of(pyvenv, "home"));  // its folder bin
    if (!below.empty()) add(sites_below(below.parent_path(), python));
  } else {
    for (const char* system : {"/usr/local", "/usr"}) add(sites_below(system, python));
  }
  return sites;
}

/// The text in quotes behind "name = " or "name: type = " in a file of Python; empty: there is none, or it is None.
std::string assigned(const fs::path& file, std::string_view name) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name)) continue;
    const auto equals = line.find('=');
    const auto after = line.size() > name.size() ? line[name.size()] : '\0';
    if (equals == std::string::npos || (after != ' ' && after != ':' && after != '=')) continue;
    const auto begin = line.find_first_of("'\"", equals);
    if (begin == std::string::npos) return {};
    return line.substr(begin + 1, line.find(line[begin], begin + 1) - begin - 1);
  }
  return {};
}

/// The versions of torch that have builds, in ascending order.
std::vector<Numbers> versions_below(const fs::path& package) {
  std::vector<Numbers> versions;
  std::error_code error;
  for (fs::directory_iterator at(package, error), end; !error && at != end; at.increment(error)) {
    const auto name = at->path().filename().native();
    if (const auto version = numbers_of(name); version && text_of(*version) == name) versions.push_back(*version);
  }
  std::ranges::sort(versions);
  return versions;
}

/// "2.9, 2.11 and 2.15"
std::string list_of(const std::vector<Numbers>& versions) {
  std::string text;
  for (const auto& version : versions)
    base::append(text, text_of(version), version == versions.back() ? " and " : ", ");
  return text;
}

std::string list_of(const std::vector<fs::path>& places) {
  std::string text;
  for (const auto& place : places) base::append(text, place.native());
  return text;
}

/// The remedy for a torch that does not fit. `site`: the first folder in which torch is looked for.
std::string install(const std::vector<Numbers>& versions, const fs::path& site) {
  const bool is_pythons = site.parent_path().filename().native().starts_with("python3");
  return "run pip install " + (is_pythons ? "" : "--target " + site.native() + " ") +
         "'torch==" + text_of(versions.back()) + ".*'" + (is_pythons ? " in the same environment" : "");
}

/// The build for this torch. `remedy`: install()'s words.
Build build_for(const fs::path& torch, const fs::path& package, const std::vector<Numbers>& versions,
                const std::string& name, const std::string& remedy) {
  const auto version = assigned(torch / "version.py", "__version__");
  const auto numbers = numbers_of(version);
  const auto found = "torch " + version + " in " + torch.parent_path().native();
  if (!numbers || std::ranges::find(versions, *numbers) == versions.end()) {
    throw base::UsageError(found + " does not fit: this " + name + " has builds for torch " + list_of(versions) + "; " +
                           remedy);
  }
  Build build{.libraries = (torch / "lib").native()};
  std::error_code error;
  if (!fs::exists(torch / "lib/libtorch_cpu.so", error)) {
    throw base::UsageError(found + " has no lib/libtorch_cpu.so, which the torch of pip has; " + remedy);
  }
  // LibTorch's libraries for CUDA have the major version of CUDA in what they ask for.
  const auto cuda = numbers_of(assigned(torch / "version.py", "cuda"));
  const auto builds = package / text_of(*numbers);
  const auto major = std::to_string(cuda ? cuda->first : 0);
  const bool has_cuda = cuda && fs::exists(builds / ("cuda" + major), error);
  if (has_cuda) build.libraries += ":" + (torch.parent_path() / "nvidia" / ("cu" + major) / "lib").native();
  build.program = builds / (has_cuda ? "cuda" + major : "cpu") / name;
  return build;
}

}  // namespace

Build find_build(const fs::path& program, const fs::path& home) {
  const auto name = program.filename().native();
  const auto prefix = program.parent_path().parent_path();
  // Packages of systems and archives bring builds with a LibTorch, which a torch of the admin's replaces.
  const auto own = prefix / "lib/muster", of_admin = prefix / "local/lib/muster";
  const bool is_packaged = !versions_below(own / kPackage).empty();
  auto places = is_packaged ? std::vector{own} : sites_below(prefix);
  if (!is_packaged) places.push_back(prefix);
  std::error_code error;
  std::vector<fs::path> looked;
  std::vector<Numbers> versions;
  for (const auto& site : places) {
    const auto package = site / kPackage;
    const auto has = versions_below(package);
    if (has.empty()) continue;
    versions = has;
    const auto sites = is_packaged ? std::vector{of_admin, own} : sites_seen_from(site, prefix, home);
    for (const auto& seen : sites) {
      if (fs::exists(seen / "torch/version.py", error))
        return build_for(seen / "torch", package, versions, name, install(versions, sites.front()));
      looked.push_back(seen);
    }
  }
  if (versions.empty()) {
    throw base::UsageError("there is no " + std::string(kPackage) + " in " + list_of(places) +
                           ", where the builds of this program belong; run pip install --force-reinstall "
                           "--no-deps muster-hpc-worker");
  }
  throw base::UsageError("there is no torch in " + list_of(looked) + "; " + install(versions, looked.front()));
}

}  // namespace starter
