// Changes that AutoExecutor.update_parameters makes to its arguments before the Slurm executor sees them.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/words.h"
#include "tests/slurm/submitit/python_text.h"
#include "tests/slurm/submitit/submitit_style.h"

namespace slurm {
namespace {

enum class Kind { kText, kInt, kNumber, kBool };

struct Generic {
  std::string_view name;
  std::string_view for_slurm;
  Kind kind;
  std::string_view wanted;
};
constexpr std::array<Generic, 8> kGenerics = {{
    {"name", "job_name", Kind::kText, "a text"},
    {"timeout_min", "time", Kind::kInt, "a whole number"},
    {"mem_gb", "mem", Kind::kNumber, "a number"},
    {"nodes", "nodes", Kind::kInt, "a whole number"},
    {"cpus_per_task", "cpus_per_task", Kind::kInt, "a whole number"},
    {"gpus_per_node", "gpus_per_node", Kind::kInt, "a whole number"},
    {"tasks_per_node", "ntasks_per_node", Kind::kInt, "a whole number"},
    {"stderr_to_stdout", "stderr_to_stdout", Kind::kBool, "true or false"},
}};
constexpr std::array<std::string_view, 3> kExecutors = {"slurm", "local", "debug"};

const Generic* generic(std::string_view name) {
  const auto* found = std::ranges::find(kGenerics, name, &Generic::name);
  return found == kGenerics.end() ? nullptr : found;
}

bool fits(const SubmititValue& value, Kind kind) {
  const bool whole = std::holds_alternative<std::int64_t>(value) || std::holds_alternative<bool>(value);
  switch (kind) {
    case Kind::kText:
      return std::holds_alternative<std::string>(value);
    case Kind::kInt:
      return whole;  // in Python a bool is an int
    case Kind::kNumber:
      return whole || std::holds_alternative<double>(value);
    case Kind::kBool:
      return std::holds_alternative<bool>(value);
  }
  return false;
}

/// The names that an executor accepts after its prefix, besides the generic ones.
std::vector<std::string> specific_names(std::string_view executor) {
  if (executor == "slurm") return submitit_slurm_names();
  if (executor == "local") return {"setup"};
  return {};
}

bool holds(const std::vector<std::string>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

/// A name without its executor's prefix still works. It refers to the last executor that has the name.
std::string with_prefix(const std::string& name) {
  std::string full = name;
  if (generic(name) != nullptr) return full;
  for (const auto executor : kExecutors) {
    if (holds(specific_names(executor), name)) full = std::string(executor) + "_" + name;
  }
  return full;
}

/// "slurm_partition" -> slurm, partition. Returns false and adds a sentence to `why` if no executor has such a name.
bool split_name(const std::string& name, std::string& executor, std::string& own, std::vector<std::string>& why) {
  const auto underscore = name.find('_');
  if (underscore == std::string::npos) {
    why.push_back("parameter '" + name + "' needs the prefix of an executor, as in 'slurm_" + name + "'");
    return false;
  }
  executor = name.substr(0, underscore);
  own = name.substr(underscore + 1);
  if (std::ranges::find(kExecutors, executor) == kExecutors.end()) {
    why.push_back("unknown executor '" + executor + "' in parameter '" + name + "'");
    return false;
  }
  const auto valid = specific_names(executor);
  if (generic(own) != nullptr || holds(valid, own)) return true;
  why.push_back("unknown parameter '" + name + "'; after '" + executor +
                "_' these are valid: " + base::joined(valid, ", "));
  return false;
}

/// 4 -> "4GB", 3.5 -> "3584MB". Returns nullopt for anything that is no finite number.
std::optional<std::string> memory_text(const SubmititValue& gigabytes) {
  const auto number = python_number(gigabytes);
  if (!number || !std::isfinite(*number) || std::abs(*number) > 1e12) return std::nullopt;
  const bool whole = *number == std::trunc(*number);
  return std::to_string(static_cast<std::int64_t>(whole ? *number : *number * 1024)) + (whole ? "GB" : "MB");
}

void put(SubmititParameters& all, const std::string& name, const SubmititValue& value) {
  const auto found = std::ranges::find(all, name, [](const auto& entry) -> const std::string& { return entry.first; });
  if (found == all.end()) {
    all.emplace_back(name, value);
  } else {
    found->second = value;
  }
}

/// Adds one call's parameters to `result`, under their names after "slurm_". Adds the reasons against them to `why`.
void convert_call(const SubmititParameters& call, SubmititParameters& result, std::vector<std::string>& why) {
  SubmititParameters given;
  for (const auto& [name, value] : call) {
    if (std::holds_alternative<std::monostate>(value)) continue;  // None is "not set"
    if (const auto* wanted = generic(name); wanted != nullptr && !fits(value, wanted->kind)) {
      why.push_back("parameter '" + name + "' must be " + std::string(wanted->wanted));
    }
    put(given, name, value);
  }
  for (const auto& [name, value] : call) {  // a name without a prefix overrides the prefixed name
    const auto full = with_prefix(name);
    if (full == name || std::holds_alternative<std::monostate>(value)) continue;
    put(given, full, value);
    std::erase_if(given, [&](const auto& entry) { return entry.first == name; });
  }
  SubmititParameters generics;
  SubmititParameters own;
  for (const auto& [name, value] : given) {
    if (const auto* known = generic(name)) {
      const std::string slurm_name(known->for_slurm);
      if (std::ranges::find(generics, slurm_name, &std::pair<std::string, SubmititValue>::first) == generics.end()) {
        generics.emplace_back(slurm_name, value);
      }
      continue;
    }
    std::string executor;
    std::string rest;
    if (!split_name(name, executor, rest, why) || executor != "slurm") continue;
    if (const auto* known = generic(rest)) {
      put(generics, std::string(known->for_slurm), value);
    } else {
      put(own, rest, value);
    }
  }
  for (auto& [name, value] : generics) {
    if (name == "mem") {
      const auto text = memory_text(value);
      if (!text) why.push_back("parameter 'mem_gb' must be a number");
      value = text.value_or("");
    }
    put(result, name, value);
  }
  for (const auto& [name, value] : own) put(result, name, value);
}

}  // namespace

std::vector<std::string> submitit_generic_names() {
  std::vector<std::string> names;
  for (const auto& known : kGenerics) names.emplace_back(known.name);
  return names;
}

std::variant<SubmititParameters, SubmititRefusal> convert_submitit(const std::vector<SubmititParameters>& calls) {
  SubmititParameters result;
  std::vector<std::string> why;
  for (const auto& call : calls) convert_call(call, result, why);
  if (why.empty()) return result;
  why.push_back("executors: slurm, local, debug; generic parameters: " + base::joined(submitit_generic_names(), ", "));
  return SubmititRefusal{std::move(why)};
}

}  // namespace slurm
