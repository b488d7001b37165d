#include "spec/jobfile/json_request.h"

#include <algorithm>
#include <limits>

#include "base/words.h"
#include "spec/jobfile/job_file.h"
#include "spec/jobfile/sweep.h"
#include "spec/jobfile/toml_value.h"

namespace jobfile {
namespace {

using nlohmann::ordered_json;

constexpr int kDeepestJson = 8;  // tables and arrays in one another
/// The most bytes of job file that a sweep may be composed of: those of its file, for each of its jobs.
constexpr std::size_t kMostSweepBytes = 256u << 20;

/// The value in the form of --set: a text as it is, anything else as TOML. nullopt: null, an object or a number that
/// TOML cannot say.
std::optional<std::string> set_text(const ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number()) return value.dump();
  if (!value.is_array()) return std::nullopt;
  std::string all;
  for (const auto& part : value) {
    if (part.is_structured() || part.is_null()) return std::nullopt;
    base::append(all, part.is_string() ? toml_text(part.get<std::string>()) : *set_text(part));
  }
  return "[" + all + "]";
}

/// The value for messages, cut where it is long.
std::string json_shown(const ordered_json& value) {
  constexpr std::size_t kMostShown = 80;
  // A large value is not written out to be cut.
  if (value.is_object() || value.is_array()) return value.is_object() ? "{...}" : "[...]";
  if (value.is_string()) return shown(std::string_view(value.get_ref<const std::string&>()).substr(0, kMostShown));
  return value.dump();
}

/// Converts one job. Knows the path of the value that it converts.
class Converter {
 public:
  Converter(const std::string& place, std::vector<Finding>& findings) : place_(place), findings_(findings) {}

  toml::table table(const ordered_json& object, const std::string& path, int depth) {
    toml::table out;
    for (const auto& [key, value] : object.items()) {
      const auto here = path.empty() ? key : path + "." + key;
      put(value, here, depth, [&, &name = key](auto node) { out.insert_or_assign(name, std::move(node)); });
    }
    return out;
  }

 private:
  toml::array array(const ordered_json& list, const std::string& path, int depth) {
    toml::array out;
    std::size_t index = 0;
    for (const auto& value : list) {
      const auto here = path + "[" + std::to_string(index++) + "]";
      if (value.is_null()) {
        refuse(value, here, "want a value; leave it out");
      } else {
        put(value, here, depth, [&](auto node) { out.push_back(std::move(node)); });
      }
    }
    return out;
  }

  template <typename Insert>
  void put(const ordered_json& value, const std::string& path, int depth, const Insert& insert) {
    if (value.is_null()) return;
    if (value.is_string()) return insert(value.get<std::string>());
    if (value.is_boolean()) return insert(value.get<bool>());
    if (value.is_number_float()) return insert(value.get<double>());
    if (value.is_number()) {
      const bool fits = !value.is_number_unsigned() ||
                        value.get<std::uint64_t>() <= std::uint64_t{std::numeric_limits<std::int64_t>::max()};
      return fits ? insert(value.get<std::int64_t>())
                  : refuse(value, path, "the number is too large; write a smaller one");
    }
    if (depth == kDeepestJson)
      return refuse(value, path, "tables and arrays stand more than 8 deep in one another; a job file has no such key");
    if (value.is_array()) return insert(array(value, path, depth + 1));
    insert(table(value, path, depth + 1));
  }

  void refuse(const ordered_json& value, const std::string& path, const std::string& said) {
    if (findings_.size() == kMostProblems) return;
    auto finding = finding_of(place_, shown(path) + " \"" + json_shown(value) + "\": ", said);
    finding.key = shown(path);
    finding.value = json_shown(value);
    findings_.push_back(std::move(finding));
  }

  const std::string& place_;
  std::vector<Finding>& findings_;
};

constexpr const char* kNoFile = "the request";

/// The object as a job file's table. A null leaves its key out. What TOML cannot say is a finding at `place`, and is
/// left out too.
toml::table toml_table_of(const ordered_json& object, const std::string& place, std::vector<Finding>& findings) {
  return Converter(place, findings).table(object, "", 0);
}

/// Reads the members of a body, each once, and notes what is wrong with them.
class Body {
 public:
  Body(const ordered_json& body, bool is_sweep) : body_(body) {
    if (!body.is_object()) {
      refuse("", "want a JSON object", nullptr);
      return;
    }
    const auto names = request_members(is_sweep);
    for (const auto& [name, value] : body.items()) {
      if (std::ranges::find(names, name) != names.end()) continue;
      const auto near = base::nearest(name, names);
      refuse(name, "unknown member" + (near.empty() ? "; docs/api.md lists the members" : "; did you mean " + near),
             nullptr);
    }
  }

  std::string text(const char* name) {
    const auto* value = find(name);
    if (value == nullptr) return {};
    if (value->is_string()) return value->get<std::string>();
    refuse(name, "want a text", value);
    return {};
  }
  /// nullptr: absent, or refused.
  const ordered_json* object(const char* name) {
    const auto* value = find(name);
    if (value == nullptr || value->is_object()) return value;
    refuse(name, "want an object", value);
    return nullptr;
  }
  const ordered_json* find(const char* name) const {
    if (!body_.is_object()) return nullptr;
    const auto found = body_.find(name);
    return found == body_.end() || found->is_null() ? nullptr : &*found;
  }
  void refuse(const std::string& name, const std::string& said, const ordered_json* value) {
    if (findings_.size() == kMostProblems) return;
    const auto text = value == nullptr ? std::string() : json_shown(*value);
    auto finding =
        finding_of(kNoFile, shown(name) + (text.empty() ? "" : " \"" + text + "\"") + (name.empty() ? "" : ": "), said);
    finding.key = shown(name);
    finding.value = text;
    findings_.push_back(std::move(finding));
  }
  std::vector<Finding>& findings() { return findings_; }

 private:
  const ordered_json& body_;
  std::vector<Finding> findings_;
};

/// nullopt: there are findings.
std::optional<JobSource> source_of(Body& body) {
  const auto text = body.text("job_file"), name = body.text("file_name"), folder = body.text("folder");
  const auto* job = body.object("job");
  if (!body.findings().empty()) return std::nullopt;
  const bool is_text = body.find("job_file") != nullptr;
  if (is_text == (job != nullptr))
    body.refuse(is_text ? "job" : "job_file",
                is_text ? "want job_file or job, not both; leave out one of them"
                        : "want job_file (the text of a job file) or job (an object of its tables)",
                nullptr);
  if (folder.empty() || folder.front() != '/' || folder.find('\0') != std::string::npos)
    body.refuse("folder", "want an absolute path, where the job's relative paths start", body.find("folder"));
  if (!is_text && !name.empty()) body.refuse("file_name", "it names the file of job_file; leave it out", nullptr);
  if (!body.findings().empty()) return std::nullopt;
  if (is_text) return JobSource::of_text(text, name.empty() ? "job_file" : shown(name), folder);
  return JobSource::of_table(toml_table_of(*job, "job", body.findings()), "job", folder);
}

/// One object of keys and values, as --set takes them.
std::vector<Override> overrides_of(Body& body, const ordered_json& object, const std::string& place) {
  std::vector<Override> all;
  for (const auto& [key, value] : object.items()) {
    const auto here = place + "." + shown(key);
    if (auto text = set_text(value)) {
      all.push_back(override_of(here, key, std::move(text)));
    } else if (!value.is_null()) {
      body.refuse(here, "want a text, a number, true, false or an array of these", &value);
    }
  }
  return all;
}

std::vector<Override> overrides_of(Body& body) {
  const auto* set = body.object("set");
  return set == nullptr ? std::vector<Override>() : overrides_of(body, *set, "set");
}

spec::Environment submitter_of(Body& body) {
  spec::Environment all;
  const auto* given = body.object("submitted_env");
  if (given == nullptr) return all;
  for (const auto& [name, value] : given->items()) {
    if (value.is_string()) {
      all.emplace(name, value.get<std::string>());
    } else {
      body.refuse("submitted_env." + shown(name), "want a text", &value);
    }
  }
  return spec::taken_from(all);
}

/// The axes of `sweep`: arrays of values, or texts such as "0..3".
std::vector<SweepAxis> axes_of(Body& body) {
  std::vector<SweepAxis> axes;
  const auto* object = body.object("sweep");
  if (object == nullptr) return axes;
  const auto table = toml_table_of(*object, kNoFile, body.findings());
  auto read = read_sweep_table(table, [](const toml::source_region&) { return std::string(); });
  for (const auto& problem : read.problems) {
    body.refuse(problem.key, problem.message, nullptr);
    body.findings().back().value = problem.value;
  }
  if (read.parallel > 0) body.refuse("sweep.parallel", "want parallel beside sweep, not in it", nullptr);
  for (auto& [axis, source] : read.axes) {
    axis.option = "sweep.";
    axes.push_back(std::move(axis));
  }
  return axes;
}

std::vector<std::vector<Override>> rows_of(Body& body) {
  std::vector<std::vector<Override>> rows;
  const auto* list = body.find("settings");
  if (list == nullptr) return rows;
  if (!list->is_array() || list->empty() || list->size() > kMostSweepJobs) {
    body.refuse("settings", "want an array of 1 to " + std::to_string(kMostSweepJobs) + " objects", list);
    return rows;
  }
  for (const auto& row : *list) {
    const auto place = "settings[" + std::to_string(rows.size()) + "]";
    if (!row.is_object()) body.refuse(place, "want an object of keys and values, as in set", &row);
    rows.push_back(row.is_object() ? overrides_of(body, row, place) : std::vector<Override>());
  }
  return rows;
}

std::uint32_t parallel_of(Body& body) {
  const auto* value = body.find("parallel");
  if (value == nullptr) return 0;
  if (value->is_number_unsigned() && *value >= 1 && *value <= kMostSweepJobs) return value->get<std::uint32_t>();
  body.refuse("parallel", "want a whole number from 1 to " + std::to_string(kMostSweepJobs), value);
  return 0;
}

JsonRequest begin(Body& body) {
  JsonRequest out;
  out.user = body.text("user");
  out.request_id = body.text("request_id");
  return out;
}

/// Where the job came from, for people.
void name_origin(Body& body, std::vector<muster::v1::JobSpec>& specs) {
  const auto name = body.text("file_name");
  for (auto& spec : specs) spec.set_job_file(name.empty() ? kNoFile : shown(name));
}

std::size_t jobs_of(const JobSource& source, const std::vector<Override>& overrides, const std::vector<SweepAxis>& axes,
                    std::size_t rows) {
  if (rows > 0) return rows;
  std::size_t jobs = 1;
  const auto count = [&](const SweepAxis& axis) { jobs = std::min(jobs * axis.values.size(), kMostSweepJobs); };
  std::ranges::for_each(axes, count);
  std::ranges::for_each(compose(source, overrides, FileChecks::kSkip).axes, count);
  return jobs;
}

/// True if composing so many jobs would take too long.
bool is_too_much(Body& body, std::size_t jobs) {
  const auto* object = body.object("job");
  const auto bytes = object != nullptr ? object->dump().size() : body.text("job_file").size();
  if (bytes == 0 || jobs <= kMostSweepBytes / bytes) return false;
  body.refuse(object != nullptr ? "job" : "job_file",
              "it is " + std::to_string(bytes) + " bytes, too many for a sweep of " + std::to_string(jobs) +
                  " jobs; shorten it, or submit the sweep in parts",
              nullptr);
  return true;
}

}  // namespace

std::vector<std::string> request_members(bool is_sweep) {
  std::vector<std::string> names{"job_file", "file_name", "folder",     "job",
                                 "set",      "user",      "request_id", "submitted_env"};
  if (is_sweep) names.insert(names.end(), {"sweep", "settings", "parallel"});
  return names;
}

JsonRequest read_job(const ordered_json& json) {
  Body body(json, false);
  auto out = begin(body);
  const auto overrides = overrides_of(body);
  auto environment = submitter_of(body);
  auto source = source_of(body);
  if (source && body.findings().empty()) {
    source->set_submitter(std::move(environment));
    auto file = compose(*source, overrides, FileChecks::kSkip);
    out.specs.push_back(std::move(file.spec));
    out.findings = std::move(file.findings);
    for (const auto& axis : file.axes)
      out.findings.push_back(finding_of(axis.option + axis.key, "",
                                        "the job file has a [sweep], and this is one job; post it to /api/v1/sweeps"));
  } else {
    out.findings = std::move(body.findings());
  }
  name_origin(body, out.specs);
  return out;
}

JsonRequest read_sweep(const ordered_json& json) {
  Body body(json, true);
  auto out = begin(body);
  const auto overrides = overrides_of(body);
  out.submitted_env = submitter_of(body);
  auto axes = axes_of(body);
  const auto rows = rows_of(body);
  const auto parallel = parallel_of(body);
  if (!rows.empty() && !axes.empty()) body.refuse("settings", "want sweep or settings, not both", nullptr);
  const auto source = source_of(body);
  if (!source || !body.findings().empty() || is_too_much(body, jobs_of(*source, overrides, axes, rows.size()))) {
    out.findings = std::move(body.findings());
    return out;
  }
  auto sweep = rows.empty() ? compose_sweep(*source, overrides, std::move(axes), FileChecks::kSkip)
                            : compose_rows(*source, overrides, rows, FileChecks::kSkip);
  out.specs = std::move(sweep.specs);
  out.findings = std::move(sweep.findings);
  out.parallel = parallel > 0 ? parallel : sweep.parallel;
  name_origin(body, out.specs);
  return out;
}

}  // namespace jobfile
