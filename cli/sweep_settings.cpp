#include "cli/sweep_settings.h"

#include <cstddef>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "cli/failure.h"

namespace cli {
namespace {

using nlohmann::json;

constexpr std::size_t kMostSettings = 64, kLongestName = 128, kLongestValue = 1024;

/// The text of a value; empty: it is none of those that can be shown.
std::string text_of(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() || value.is_boolean()) return value.dump();
  return {};
}

}  // namespace

void take_settings(const std::string& file, std::vector<muster::v1::JobSpec>& specs) {
  std::ifstream in(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto refuse = [&](const std::string& what) {
    return Failure(kUsage, "--sweep-settings " + file + ": " + what);
  };
  if (!in && text.empty()) throw refuse("cannot be read");
  const auto all = json::parse(text, nullptr, false);
  if (!all.is_array()) throw refuse("want a JSON array with an object for each job");
  if (all.size() != specs.size()) {
    throw refuse("has settings of " + std::to_string(all.size()) + " jobs, and the sweep has " +
                 std::to_string(specs.size()));
  }
  for (std::size_t job = 0; job < specs.size(); ++job) {
    const auto place = "job " + std::to_string(job) + ": ";
    if (!all[job].is_object() || all[job].size() > kMostSettings) {
      throw refuse(place + "want an object with at most " + std::to_string(kMostSettings) + " names");
    }
    auto& shown = *specs[job].mutable_sweep()->mutable_settings();
    shown.clear();
    for (const auto& [name, value] : all[job].items()) {
      if (name.empty() || name.size() > kLongestName) throw refuse(place + "want names of 1 to 128 bytes");
      if (value.is_structured() || value.is_null()) {
        throw refuse(place + "\"" + name + "\" is " + value.type_name() + "; want a text, a number, true or false");
      }
      shown[name] = base::valid_utf8(text_of(value).substr(0, kLongestValue));
    }
  }
}

}  // namespace cli
