#include "spec/jobfile/missing_inputs.h"

#include <array>
#include <filesystem>
#include <string_view>

#include "spec/jobfile/job_keys.h"

namespace jobfile {
namespace {

struct Input {
  std::string_view key;
  const char* file;  // what the folder has once it can be used
  const char* remedy;
};

constexpr std::array kInputs = {
    Input{"data.prepared", "data.json", "muster data prepare must have finished there before the job starts"},
    Input{spec::kPretrained, "config.json", "the model must be there before the job starts"}};

}  // namespace

std::vector<std::string> missing_inputs(const muster::v1::JobSpec& spec) {
  if (!spec.has_recipe()) return {};
  const auto values = values_of(spec, tables_of(spec.recipe()));
  std::vector<std::string> found;
  for (const auto& input : kInputs) {
    if (!values.has(input.key)) continue;
    const std::filesystem::path folder = values.text(input.key);
    std::error_code error;
    if (folder.empty() || std::filesystem::exists(folder / input.file, error) || error) continue;
    found.push_back(std::string(input.key) + " = \"" + folder.native() + "\" has no " + input.file +
                    " on this machine; " + input.remedy);
  }
  return found;
}

}  // namespace jobfile
