#include "spec/jobfile/sweep.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "base/numbers.h"
#include "spec/jobfile/job_file.h"
#include "spec/jobfile/job_keys.h"
#include "spec/jobfile/toml_value.h"

namespace jobfile {
namespace {

constexpr const char* kWantValues = "want values such as 1e-4,3e-4 or 0..3";

/// Splits the text at commas outside of quotes and brackets.
std::vector<std::string> parts_of(std::string_view text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',' && depth == 0) {
      parts.emplace_back();
      continue;
    }
    parts.back() += c;
  }
  return parts;
}

/// Adds one value, or all values of a range. Returns the problem; empty: there is none.
std::string add_values(const std::string& part, std::vector<std::string>* values) {
  const auto dots = part.find("..");
  const auto first = dots == std::string::npos ? std::nullopt : base::whole_number<std::int64_t>(part.substr(0, dots));
  const auto last = dots == std::string::npos ? std::nullopt : base::whole_number<std::int64_t>(part.substr(dots + 2));
  if (!first || !last) {
    if (part.empty()) return std::string("a value is missing; ") + kWantValues;
    values->push_back(part);
    return {};
  }
  if (*first > *last) return "want the smaller number first: " + std::to_string(*last) + ".." + std::to_string(*first);
  const auto count = static_cast<std::uint64_t>(*last) - static_cast<std::uint64_t>(*first);
  if (count >= kMostSweepJobs) return "a sweep is at most " + std::to_string(kMostSweepJobs) + " jobs; split it";
  for (std::uint64_t i = 0; i <= count; ++i) values->push_back(std::to_string(*first + static_cast<std::int64_t>(i)));
  return {};
}

std::string add_all(std::string_view text, std::vector<std::string>* values) {
  for (const auto& part : parts_of(text)) {
    const auto begin = part.find_first_not_of(' '), end = part.find_last_not_of(' ');
    const auto trimmed = begin == std::string::npos ? std::string() : part.substr(begin, end - begin + 1);
    if (auto problem = add_values(trimmed, values); !problem.empty()) return problem;
  }
  return {};
}

std::string twice_in(const std::vector<std::string>& values) {
  auto sorted = values;
  std::ranges::sort(sorted);
  const auto found = std::ranges::adjacent_find(sorted);
  return found == sorted.end() ? "" : shown(*found) + " is given twice; each combination runs once";
}

/// A number in the form in which it was written: 1e-3 does not become 0.001.
std::string written_number(const toml::node& node, const WrittenAt& written) {
  auto text = written(node.source());
  return base::real_number(text) == node.as_floating_point()->get() ? text : shown(node);
}

/// Reads [sweep] and the tables in it.
class TableReader {
 public:
  TableReader(SweepTable& out, const WrittenAt& written) : out_(out), written_(written) {}

  void read(const toml::table& table, const std::string& prefix) {
    for (const auto& [key, node] : table) {
      const auto word = prefix + std::string(key.str());
      if (word == "parallel") {
        read_parallel(node);
      } else if (const auto* inner = node.as_table()) {
        read(*inner, word + ".");
      } else {
        read_axis(word, key.source(), node);
      }
    }
  }

 private:
  void refuse(const std::string& word, const std::string& value, const std::string& message,
              const toml::source_region& source) {
    out_.problems.push_back({"sweep." + shown(word), value, message, &source});
  }

  void read_parallel(const toml::node& node) {
    const auto* number = node.as_integer();
    if (number == nullptr || number->get() < 1 || number->get() > static_cast<std::int64_t>(kMostSweepJobs)) {
      return refuse("parallel", shown(node), "want a whole number from 1 to " + std::to_string(kMostSweepJobs),
                    node.source());
    }
    out_.parallel = static_cast<std::uint32_t>(number->get());
  }

  void read_axis(const std::string& word, const toml::source_region& place, const toml::node& node) {
    const auto resolved = resolve_sweep_key(word, sweepable_keys());
    if (!resolved.problem.empty()) return refuse(word, shown(node), resolved.problem, place);
    SweepAxis axis{resolved.key, "", {}};
    if (const auto* list = node.as_array()) {
      for (const auto& element : *list) {
        auto text = scalar_text(element, written_);
        if (!text) return refuse(word, shown(element), "want a text, a number or true or false", element.source());
        axis.values.push_back(std::move(*text));
      }
      if (list->empty()) return refuse(word, "[]", "want one value or more", node.source());
    } else if (auto text = scalar_text(node, written_); !text) {
      return refuse(word, shown(node), "want an array of values, or a text such as \"0..3\"", node.source());
    } else if (const auto problem = add_all(*text, &axis.values); !problem.empty()) {
      return refuse(word, shown(node), problem, node.source());
    }
    if (const auto twice = twice_in(axis.values); !twice.empty()) return refuse(word, "", twice, node.source());
    for (const auto& known : out_.axes) {
      if (known.axis.key == axis.key) return refuse(word, "", "the key is given twice; remove one of them", place);
    }
    out_.axes.push_back({std::move(axis), &place});
  }

  SweepTable& out_;
  const WrittenAt& written_;
};

constexpr std::size_t kLongestFolder = 200;

/// A path that a job writes to, which no two jobs of a sweep may share.
struct Output {
  const char* key;
  bool is_file;
  const char* remedy;
};
constexpr Output kOutputs[] = {
    {"checkpoint.folder", false, "leave it out, and each job gets its own"},
    {"train.export_folder", false, "let it differ, or leave it out"},
    {"train.full_state_file", true, "let it differ, or leave it out"},
    {"train.log_folder", false, "let it differ, or leave it out"},
};

/// The path with a folder added, which is the file's own for a file.
std::string with_folder(const Output& output, const std::filesystem::path& path, const std::string& folder) {
  return (output.is_file ? path.parent_path() / folder / path.filename() : path / folder).native();
}

/// The job file's axes and those of the command line. An axis of the command line replaces one with the same key.
std::vector<SweepAxis> joined(std::vector<SweepAxis> own, std::vector<SweepAxis> more) {
  for (auto& axis : more) {
    const auto same = std::ranges::find_if(own, [&](const SweepAxis& a) { return a.key == axis.key; });
    if (same == own.end()) {
      own.push_back(std::move(axis));
    } else {
      *same = std::move(axis);
    }
  }
  return own;
}

constexpr const char* kTooMany = "the sweep is more than 10000 jobs; give it fewer values, or submit it in parts";
static_assert(kMostSweepJobs == 10000);

std::optional<Finding> problem_of(const std::vector<SweepAxis>& axes, const std::vector<Override>& overrides,
                                  bool is_command) {
  std::size_t jobs = 1;
  for (const auto& axis : axes) {
    for (const auto& override : overrides) {
      if (override.key == axis.key && !override.of_file)
        return finding_of(override.option, "", "the sweep varies it; remove one of them");
    }
    const auto* key = find_key(axis.key);
    if (is_command && key != nullptr && is_recipe_key(*key)) {
      return finding_of(axis.option + axis.key, "", not_of_a_command(axis.key));
    }
    jobs *= axis.values.size();
    if (jobs > kMostSweepJobs) {
      auto finding = finding_of("", "", kTooMany);
      finding.line = kTooMany;
      return finding;
    }
  }
  return std::nullopt;
}

/// The settings of one job: its overrides, its keys and values, and a name for its folder.
struct Settings {
  std::vector<Override> overrides;
  std::vector<std::pair<std::string, std::string>> values;

  /// "train.learning_rate=1e-4,train.seed=0", without characters that a file name cannot have.
  std::string folder() const {
    std::string name;
    for (const auto& [key, value] : values) name += (name.empty() ? "" : ",") + key + "=" + value;
    for (char& c : name) {
      const bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
      if (!fine && std::string_view("._=,+-").find(c) == std::string_view::npos) c = '_';
    }
    return name;
  }
};

/// One combination: the index of a value for each axis.
class Combination {
 public:
  explicit Combination(const std::vector<SweepAxis>& axes) : axes_(axes), at_(axes.size(), 0) {}

  Settings settings() const {
    Settings all;
    for (std::size_t i = 0; i < axes_.size(); ++i) {
      all.overrides.push_back({axes_[i].option + axes_[i].key + "=" + shown(value(i)), axes_[i].key, value(i)});
      all.values.emplace_back(axes_[i].key, value(i));
    }
    return all;
  }
  /// Goes to the next combination. Returns false after the last one.
  bool next() {
    for (std::size_t i = axes_.size(); i-- > 0;) {
      if (++at_[i] < axes_[i].values.size()) return true;
      at_[i] = 0;
    }
    return false;
  }

 private:
  const std::string& value(std::size_t axis) const { return axes_[axis].values[at_[axis]]; }

  const std::vector<SweepAxis>& axes_;
  std::vector<std::size_t> at_;
};

/// Composes the jobs one after the other, and checks that no two write to one path.
class Composer {
 public:
  Composer(const JobSource& source, const std::vector<Override>& overrides, FileChecks checks,
           std::set<std::string> varying)
      : source_(source), overrides_(overrides), checks_(checks), varying_(std::move(varying)) {}

  /// Returns false after the most problems.
  bool add(Settings settings) {
    auto all = overrides_;
    for (auto& override : settings.overrides) all.push_back(std::move(override));
    auto job = compose(source_, all, checks_);
    for (const auto& finding : job.findings) tell(finding);
    finish(settings, job.spec);
    sweep_.specs.push_back(std::move(job.spec));
    return sweep_.findings.size() < kMostProblems;
  }
  Sweep take(std::uint32_t parallel) {
    for (const auto& finding : sweep_.findings) sweep_.problems.push_back(finding.line);
    sweep_.parallel = parallel;
    return std::move(sweep_);
  }

 private:
  void tell(const Finding& finding) {
    if (told_.insert(finding.line).second) sweep_.findings.push_back(finding);
  }
  void refuse(const Output& output, const std::string& path, const std::string& said) {
    const auto value = path.empty() ? "" : " \"" + shown(path) + "\"";
    auto finding = finding_of(output.key + value, "", said);
    finding.place = source_.name();
    finding.key = output.key;
    finding.value = shown(path);
    tell(finding);
  }
  /// Gives the job its name, its settings and its own paths to write to.
  void finish(const Settings& settings, muster::v1::JobSpec& spec) {
    const auto index = static_cast<std::uint32_t>(sweep_.specs.size());
    char suffix[16];
    std::snprintf(suffix, sizeof suffix, "-%04u", static_cast<unsigned>(index));
    spec.set_name(spec.name().substr(0, spec::kLongestName - std::string_view(suffix).size()) + suffix);
    for (const auto& [key, value] : settings.values) (*spec.mutable_sweep()->mutable_settings())[key] = value;
    spec.mutable_sweep()->set_index(index);
    const auto folder = settings.folder();
    for (const auto& output : kOutputs) give_own(output, folder, spec);
  }
  void give_own(const Output& output, const std::string& folder, muster::v1::JobSpec& spec) {
    const auto& key = *find_key(output.key);
    const auto value = get(spec, key);
    auto path = value ? std::get<std::string>(*value) : std::string();
    if (path.empty()) return;
    if (!varying_.contains(output.key)) {
      if (folder.size() > kLongestFolder) {
        return refuse(output, "",
                      std::string("the settings are too long for the name of each job's folder; ") + output.remedy);
      }
      path = with_folder(output, path, folder);
      set(spec, key, path);
    }
    const auto [known, fresh] = paths_.emplace(output.key + path, spec.name());
    if (!fresh) refuse(output, path, known->second + " and " + spec.name() + " would both use it; " + output.remedy);
  }

  const JobSource& source_;
  const std::vector<Override>& overrides_;
  const FileChecks checks_;
  const std::set<std::string> varying_;  // the keys that say of each job where it writes
  Sweep sweep_;
  std::set<std::string> told_;
  std::map<std::string, std::string> paths_;  // the job that writes there, by key and path
};

Sweep refused(std::vector<Finding> findings, std::uint32_t parallel) {
  Sweep sweep;
  for (const auto& finding : findings) sweep.problems.push_back(finding.line);
  sweep.findings = std::move(findings);
  sweep.parallel = parallel;
  return sweep;
}

}  // namespace

std::optional<std::string> scalar_text(const toml::node& node, const WrittenAt& written) {
  if (const auto* text = node.as_string()) return text->get();
  if (node.is_floating_point()) return written_number(node, written);
  if (node.is_integer() || node.is_boolean()) return shown(node);
  return std::nullopt;
}

std::vector<std::string> sweepable_keys() {
  std::vector<std::string> keys;
  for (const auto& field : job_keys()) {
    if (is_plain(field) && field.name != "name" && field.name != "executor" && field.name != "launcher" &&
        field.name != "environment" && field.name != "hold") {
      keys.emplace_back(field.name);
    }
  }
  return keys;
}

SweepKey resolve_sweep_key(const std::string& word, const std::vector<std::string>& keys) {
  if (std::ranges::find(keys, word) != keys.end()) return {word, ""};
  const auto parent = table_of(word);
  if (is_open_table(parent) && !leaf_of(word).empty()) return {word, ""};
  if (find_key(word) != nullptr) return {"", "a sweep can't vary this key"};
  const auto meant = keys_ending_in(word, keys);
  if (meant.size() == 1) return {meant.front(), ""};
  return {"", meant.empty() ? unknown_key(word) : several_keys(meant)};
}

ReadAxis axis_of_option(const std::string& assignment) {
  const auto equals = assignment.find('=');
  const auto place = "--sweep " + shown(assignment) + ": ";
  if (equals == std::string::npos || equals == 0) return {{}, place + "want key=values, such as train.seed=0..3"};
  const auto resolved = resolve_sweep_key(assignment.substr(0, equals), sweepable_keys());
  if (!resolved.problem.empty()) return {{}, place + resolved.problem};
  SweepAxis axis{resolved.key, "--sweep ", {}};
  if (const auto problem = add_all(std::string_view(assignment).substr(equals + 1), &axis.values); !problem.empty()) {
    return {{}, place + problem};
  }
  if (const auto twice = twice_in(axis.values); !twice.empty()) return {{}, place + twice};
  return {std::move(axis), ""};
}

SweepTable read_sweep_table(const toml::node& node, const WrittenAt& written) {
  SweepTable out;
  if (const auto* table = node.as_table()) {
    TableReader(out, written).read(*table, "");
  } else {
    out.problems.push_back({"sweep", shown(node), "want a table: [sweep] and its keys below", &node.source()});
  }
  return out;
}

Sweep compose_sweep(const JobSource& source, const std::vector<Override>& overrides, std::vector<SweepAxis> axes,
                    FileChecks checks) {
  auto base = compose(source, overrides, FileChecks::kSkip);
  axes = joined(std::move(base.axes), std::move(axes));
  std::vector<Finding> findings;
  if (auto finding = problem_of(axes, overrides, base.spec.has_command())) findings.push_back(std::move(*finding));
  if (axes.empty() || !findings.empty()) {
    findings.insert(findings.end(), base.findings.begin(), base.findings.end());
    if (findings.empty()) findings.push_back(finding_of(source.name(), "", "the sweep varies no key"));
    return refused(std::move(findings), base.parallel);
  }
  std::set<std::string> varying;
  for (const auto& axis : axes) varying.insert(axis.key);
  Composer composer(source, overrides, checks, std::move(varying));
  Combination combination(axes);
  while (composer.add(combination.settings()) && combination.next()) {
  }
  return composer.take(base.parallel);
}

Sweep compose_rows(const JobSource& source, const std::vector<Override>& overrides,
                   const std::vector<std::vector<Override>>& rows, FileChecks checks) {
  if (rows.size() > kMostSweepJobs) return refused({finding_of(source.name(), "", kTooMany)}, 0);
  std::set<std::string> varying;
  for (const auto& output : kOutputs) {
    const bool in_each = std::ranges::all_of(rows, [&](const auto& row) {
      return std::ranges::any_of(row, [&](const auto& override) { return override.key == output.key; });
    });
    if (in_each) varying.insert(output.key);
  }
  const auto base = compose(source, overrides, FileChecks::kSkip);
  if (!base.axes.empty())
    return refused({finding_of(base.axes.front().option + base.axes.front().key, "",
                               "the jobs of this sweep are listed one by one; leave out [sweep]")},
                   0);
  Composer composer(source, overrides, checks, std::move(varying));
  for (const auto& row : rows) {
    Settings settings{row, {}};
    for (const auto& override : row) settings.values.emplace_back(override.key, override.value.value_or(""));
    if (!composer.add(std::move(settings))) break;
  }
  return composer.take(base.parallel);
}

}  // namespace jobfile
