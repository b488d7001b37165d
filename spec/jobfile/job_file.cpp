#include "spec/jobfile/job_file.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "spec/jobfile/job_keys.h"
#include "spec/jobfile/sbatch_words.h"
#include "spec/jobfile/toml_value.h"
#include "spec/jobfile/validate.h"

namespace jobfile {
namespace {

namespace fs = std::filesystem;

/// The origin of a value: a line of a file, or an option. Options sort after lines.
struct Place {
  bool option = false;
  std::size_t depth = 0;  // 0: the job file; 1: the file that it extends; ...
  toml::source_position at{1, 1};
  std::string text;  // the option as typed, or the file's name
  std::string key;   // the key that the option sets
};

struct Located {
  Place place;
  Finding finding;  // without the place

  auto order() const { return std::tuple(place.option, place.depth, place.at.line, place.at.column); }
};

/// The remedy for a key of [report] that is none, such as a value of the log; empty: the key is a misspelt one.
std::string instead_of_report_key(const std::string& path) {
  if (did_you_mean(path).starts_with("report.")) return {};
  return "[report] says where to look, and values of the log are patterns of report.log: log = {step = 'step (\\d+)', "
         "loss = 'loss ([\\d.]+)'}";
}

/// Reads a parsed file into a spec. Collects problems, and remembers where each key was given.
class Reader {
 public:
  explicit Reader(const JobSource& source) : source_(source) {}

  void read(const std::vector<Override>& overrides, FileChecks checks);
  JobFile finish();

 private:
  void apply(toml::table& root, const Override& override);
  static void forget_sbatchs_name(toml::table& root, const std::string& key);
  void append_words(toml::table& root, const Override& override, const Place& place);
  void choose_program(const toml::table& root);
  void read_table(const toml::table& table, const std::string& prefix);
  void read_node(const std::string& path, const toml::key& key, const toml::node& node);
  void read_field(const Key& field, const toml::node& node);
  void read_words(const Key& field, const toml::node& node);
  /// Calls `take` with the path, the name and the value of each entry of a table.
  template <typename Take>
  void each_entry(const Key& field, const toml::node& node, Take take);
  void read_variables(const Key& field, const toml::node& node);
  void read_options(const Key& field, const toml::node& node);
  void read_patterns(const Key& field, const toml::node& node);
  void read_sweep(const toml::node& node);
  void take_from_submitter();
  void judge(FileChecks checks);

  Place place_of(const std::string& path, const toml::source_region& source) const;
  void refuse(const std::string& path, const Place& place, const std::optional<std::string>& value,
              const std::string& message);
  void refuse_unknown(const std::string& path, const Place& place);
  void read_as_sbatch(const std::string& path, const Key& field, const toml::node& node);
  Place start_of_file() const { return {false, 0, source_.start(), source_.name(), ""}; }
  WrittenAt written_at() const {
    return [this](const toml::source_region& place) { return source_.text_of(place); };
  }
  fs::path absolute(const std::string& path, const fs::path& folder) const;

  const JobSource& source_;
  muster::v1::JobSpec spec_;
  std::vector<SweepAxis> axes_;
  std::uint32_t parallel_ = 0;
  std::map<std::string, Place> overridden_;
  std::map<std::string, Place> given_;
  std::set<std::string> broken_;  // keys with a bad value; problems that follow from them are left out
  std::vector<Located> found_;
};

void Reader::refuse(const std::string& path, const Place& place, const std::optional<std::string>& value,
                    const std::string& message) {
  broken_.insert(path);
  std::string what;
  if (!place.option || place.key != path) {
    what = path;
    if (value) what += (path.empty() ? "\"" : " \"") + *value + "\"";
    if (!what.empty()) what += ": ";
  }
  auto finding = finding_of("", what, message);
  finding.key = path;
  finding.value = value.value_or("");
  found_.push_back({place, std::move(finding)});
}

void Reader::refuse_unknown(const std::string& path, const Place& place) {
  if (find_key(path) != nullptr) {  // "resources.nodes" = 1: in quotes, TOML reads it as one name
    return refuse("\"" + shown(path) + "\"", place, std::nullopt,
                  "unknown key; write it without quotes, or " + leaf_of(path) + " below [" + table_of(path) + "]");
  }
  const auto table = table_of(path);
  const auto instead = table == "slurm"    ? instead_of_slurm_option(leaf_of(path))
                       : table == "report" ? instead_of_report_key(path)
                                           : std::string();
  refuse(shown(path), place, std::nullopt, instead.empty() ? unknown_key(path) : "unknown key; " + instead);
}

/// Reads a key of [slurm] by sbatch's name, such as slurm.time. All of sbatch's forms are meant there.
void Reader::read_as_sbatch(const std::string& path, const Key& field, const toml::node& node) {
  const auto place = place_of(path, node.source());
  const std::string name(field.name);
  if (given_.contains(name)) {
    return refuse(path, place, std::nullopt, "this key means " + name + ", which is given, too; remove one of them");
  }
  given_[name] = place;
  const auto* text = node.as_string();
  if (field.kind != Kind::kDuration || (text == nullptr && !node.is_integer())) return read_field(field, node);
  const toml::value<std::string> duration(as_duration(text != nullptr ? text->get() : shown(node)));
  read_field(field, duration);
}

Place Reader::place_of(const std::string& path, const toml::source_region& source) const {
  for (auto key = path; !key.empty(); key = table_of(key)) {
    if (const auto found = overridden_.find(key); found != overridden_.end()) return found->second;
  }
  if (!source.path) {  // an option created the table
    const auto found = overridden_.lower_bound(path + ".");
    if (found != overridden_.end() && found->first.starts_with(path + ".")) return found->second;
  }
  return {false, source_.depth_of(source), source.begin, source.path ? *source.path : source_.name(), ""};
}

fs::path Reader::absolute(const std::string& path, const fs::path& folder) const {
  const char* home = std::getenv("HOME");
  if ((path == "~" || path.starts_with("~/")) && home != nullptr) {
    return (fs::path(home) / fs::path(path.substr(std::min<std::size_t>(2, path.size())))).lexically_normal();
  }
  return (folder / path).lexically_normal();
}

void Reader::apply(toml::table& root, const Override& override) {
  const auto leaf = leaf_of(override.key), parent = table_of(override.key);
  const bool open = is_open_table(parent);
  const bool shape_fine = !leaf.empty() && override.key[0] != '.' && (open || parent.find('.') == std::string::npos);
  const Place place{true, 0, {1, 1}, override.option, override.key};
  const auto no = [&](const std::string& message) { refuse(override.key, place, std::nullopt, message); };
  if (!override.problem.empty()) return no(override.problem);
  if (const auto meant = key_of_sbatch(override.key); !meant.empty()) {
    auto ours = override;
    ours.key = meant;
    if (ours.value && find_key(meant)->kind == Kind::kDuration) ours.value = as_duration(*ours.value);
    return apply(root, ours);
  }
  if (!override.append.empty()) return append_words(root, override, place);
  if (!override.value) return no("want key=value");
  const auto* field = find_key(override.key);
  if (!shape_fine || (field == nullptr && !open && !is_table_name(override.key))) {
    return refuse_unknown(override.key, place);
  }
  if (field != nullptr && is_recipe_key(*field) && root.contains("command")) return no(not_of_a_command(override.key));
  if (override.key == "sweep") return no("want --sweep key=values");
  if (override.key == "extends") return no("this key can be set in the job file only");
  toml::table* table = &root;
  for (std::size_t at = 0; table != nullptr && at < parent.size();) {
    const auto end = std::min(parent.find('.', at), parent.size());
    table = table->insert(parent.substr(at, end - at), toml::table()).first->second.as_table();
    at = end + 1;
  }
  if (table == nullptr) return;  // the file has a value where a table should be; read_node() refuses it
  forget_sbatchs_name(root, override.key);
  static constexpr Key kAnyText{.name = "env", .kind = Kind::kText};
  overridden_[override.key] = place;
  const bool takes_any = parent == "env" || parent == "report.log";
  insert_text(*table, leaf, takes_any ? &kAnyText : field, *override.value);
}

/// An option stands above the file's value of the same key, also where the file has it by sbatch's name.
void Reader::forget_sbatchs_name(toml::table& root, const std::string& key) {
  auto* const slurm = root["slurm"].as_table();
  if (slurm == nullptr) return;
  std::vector<std::string> names;
  for (const auto& [name, node] : *slurm) {
    if (key_of_sbatch("slurm." + std::string(name.str())) == key) names.emplace_back(name.str());
  }
  for (const auto& name : names) slurm->erase(name);
}

/// If the file's command is no array, read_node() refuses it, so nothing is said here.
void Reader::append_words(toml::table& root, const Override& override, const Place& place) {
  if (auto* words = root["command"].as_array()) {
    for (const auto& word : override.append) words->push_back(word);
  } else if (!root.contains("command")) {
    refuse(override.key, place, std::nullopt,
           "want a job file with a command to add these words to; set a recipe's keys with --set train.steps=10");
  }
}

/// Refuses a file with both `command` and a recipe's table. The recipe is still read, to find its problems.
void Reader::choose_program(const toml::table& root) {
  for (const auto& [key, node] : root) {
    const std::string table(key.str());
    if (!is_recipe_table(table)) continue;
    spec_.mutable_recipe();
    if (root.contains("command") && !broken_.contains("command")) {
      refuse("command", place_of(table, key.source()), std::nullopt,
             "want either command or [" + table + "], not both; remove one of them");
      broken_.insert("");
    }
  }
}

void Reader::read_table(const toml::table& table, const std::string& prefix) {
  for (const auto& [key, node] : table) {
    const std::string leaf(key.str());
    read_node(prefix + leaf, key, node);
  }
}

void Reader::read_node(const std::string& path, const toml::key& key, const toml::node& node) {
  const std::string leaf(key.str());
  const auto* field = find_key(path);
  if (leaf.find('.') == std::string::npos && field != nullptr) {
    given_[path] = place_of(path, node.source());
    read_field(*field, node);
  } else if (is_table_name(path)) {
    if (const auto* inner = node.as_table()) return read_table(*inner, path + ".");
    refuse(path, place_of(path, node.source()), shown(node), "want a table: [" + path + "] and its keys below");
    broken_.insert("");
  } else if (const auto meant = key_of_sbatch(path); !meant.empty()) {
    read_as_sbatch(path, *find_key(meant), node);
  } else {
    refuse_unknown(path, place_of(path, key.source()));
  }
}

void Reader::read_field(const Key& field, const toml::node& node) {
  switch (field.kind) {
    case Kind::kWords:
    case Kind::kLines:
      return read_words(field, node);
    case Kind::kVariables:
      return read_variables(field, node);
    case Kind::kPatterns:
      return read_patterns(field, node);
    case Kind::kOptions:
      return read_options(field, node);
    case Kind::kSweep:
      return read_sweep(node);
    default:
      break;
  }
  const std::string path(field.name);
  auto value = value_of(field, node);
  const auto* written = node.as_string();
  if (!value && written != nullptr) value = sbatch_value(field, written->get());
  if (!value || !allowed(field, *value)) {
    std::string remedy = sbatch_remedy(field, written != nullptr ? written->get() : shown(node));
    const bool unquoted = field.kind == Kind::kWhole || field.kind == Kind::kReal || field.kind == Kind::kFlag;
    if (const auto* text = node.as_string(); text != nullptr && unquoted) {
      const auto bare = parse(field, text->get());
      if (bare && allowed(field, *bare)) remedy = "; write it without quotes";
    }
    return refuse(path, given_[path], shown(node), "want " + wanted(field) + remedy);
  }
  if (field.kind == Kind::kPath) {
    value = absolute(std::get<std::string>(*value), source_.folder_of(node.source())).native();
  }
  set(spec_, field, *value);
}

void Reader::read_words(const Key& field, const toml::node& node) {
  const std::string path(field.name);
  const auto* words = node.as_array();
  if (broken_.contains(path)) return;
  if (path == "command") spec_.mutable_command();
  if (words == nullptr) return refuse(path, given_[path], shown(node), "want " + wanted(field));
  for (const auto& word : *words) {
    const auto* text = word.as_string();
    const auto place = place_of(path, word.source());
    if (text == nullptr) {
      return refuse(path, place, shown(word),
                    "want a text in quotes" + std::string(path == "command" ? ", as every argument" : ""));
    }
    if (field.kind == Kind::kLines && text->get().find_first_of(std::string_view("\r\n\0", 3)) != std::string::npos) {
      return refuse(path, place, shown(word), "want one line; write each as a text of its own");
    }
    add(spec_, field, text->get());
  }
}

template <typename Take>
void Reader::each_entry(const Key& field, const toml::node& node, Take take) {
  const std::string parent(field.name);
  const auto* table = node.as_table();
  if (table == nullptr) return refuse(parent, given_[parent], shown(node), "want " + wanted(field));
  for (const auto& [key, value] : *table) {
    const std::string name(key.str());
    const auto path = parent + "." + name;
    given_[path] = place_of(path, value.source());
    take(path, name, value);
  }
}

void Reader::read_variables(const Key& field, const toml::node& node) {
  each_entry(field, node, [&](const std::string& path, const std::string& name, const toml::node& value) {
    if (const auto text = scalar_text(value, written_at())) {
      texts_by_name(spec_, field)[name] = *text;
    } else {
      refuse(path, given_[path], shown(value), "want a text in quotes, a number, true or false");
    }
  });
}

void Reader::read_options(const Key& field, const toml::node& node) {
  each_entry(field, node, [&](const std::string& path, const std::string& name, const toml::node& value) {
    auto& text = texts_by_name(spec_, field)[name];
    if (const auto* flag = value.as_boolean(); flag != nullptr) {
      if (!flag->get()) refuse(path, given_[path], "false", "want a text, a number or true; or leave it out");
    } else if (value.is_string() && value.as_string()->get().empty()) {
      refuse(path, given_[path], "", "want a text, a number or true; true for an option without a value");
    } else if (value.is_string() || value.is_number()) {
      text = value.is_string() ? value.as_string()->get() : shown(value);
    } else {
      refuse(path, given_[path], shown(value), "want a text, a number or true");
    }
  });
}

void Reader::read_patterns(const Key& field, const toml::node& node) {
  each_entry(field, node, [&](const std::string& path, const std::string& name, const toml::node& value) {
    if (const auto* text = value.as_string()) {
      texts_by_name(spec_, field)[name] = text->get();
    } else {
      refuse(path, given_[path], shown(value), "want a pattern in single quotes, such as 'loss ([\\d.]+)'");
    }
  });
}

void Reader::read_sweep(const toml::node& node) {
  auto table = read_sweep_table(node, written_at());
  for (auto& problem : table.problems) {
    refuse(problem.key, place_of("sweep", *problem.source), problem.value, problem.message);
  }
  std::ranges::stable_sort(table.axes, [&](const LocatedAxis& a, const LocatedAxis& b) {
    // The axes of an extended file come first.
    return std::tuple(source_.depth_of(*b.source), a.source->begin.line, a.source->begin.column) <
           std::tuple(source_.depth_of(*a.source), b.source->begin.line, b.source->begin.column);
  });
  for (auto& [axis, source] : table.axes) {
    axis.option = text_of_place(source->path ? *source->path : source_.name(), source->begin) + ": sweep.";
    axes_.push_back(std::move(axis));
  }
  parallel_ = table.parallel;
}

/// Takes the submitter's variables for environment = "submit", unless the job file has [submitted_env].
void Reader::take_from_submitter() {
  if (!spec_.has_command() || spec_.environment() == "clean" || spec_.submitted_env_size() > 0) return;
  for (const auto& [name, value] : source_.taken_from_submitter()) {
    (*spec_.mutable_submitted_env())[name] = value;
  }
}

/// Runs the checks of the whole spec. Leaves out problems that rest on a value that was refused already.
void Reader::judge(FileChecks checks) {
  const auto requeue = spec_.has_requeue() ? std::optional(spec_.requeue()) : std::nullopt;
  fill_defaults(spec_);
  if (parallel_ > 0) spec_.mutable_sweep()->set_parallel(parallel_);
  const auto problems = validate(spec_, checks);
  spec_.clear_sweep();  // each job gets its own
  for (const auto& problem : problems) {
    const auto broken = [&](const std::string& key) { return broken_.contains(key); };
    if (broken(problem.field) || std::any_of(problem.related.begin(), problem.related.end(), broken)) continue;
    auto place = start_of_file();
    auto keys = problem.related;
    keys.insert(keys.begin(), problem.field);
    for (const auto& key : keys) {
      if (const auto found = given_.find(key); found != given_.end()) {
        place = found->second;
        break;
      }
    }
    auto text = problem;
    if (place.option && place.key == problem.field) text.field = text.value = "";
    text.value = shown(text.value);
    found_.push_back(
        {place, {"", problem.field, shown(problem.value), problem.message, problem.remedy, ": " + to_string(text)}});
  }
  // The controller fills in the budgets that the job file leaves out, since partitions may have their own.
  spec_.clear_requeue();
  if (requeue) *spec_.mutable_requeue() = *requeue;
}

void Reader::read(const std::vector<Override>& overrides, FileChecks checks) {
  auto table = source_.merged();
  for (const auto& override : overrides) apply(table, override);
  choose_program(table);
  read_table(table, "");
  if (spec_.working_folder().empty() && !broken_.contains("working_folder")) {
    spec_.set_working_folder(source_.folder().lexically_normal().native());
  }
  take_from_submitter();
  judge(checks);
}

JobFile Reader::finish() {
  std::ranges::stable_sort(found_, {}, &Located::order);
  JobFile result{std::move(spec_), {}, std::move(axes_), parallel_};
  for (auto& [place, finding] : found_) {
    if (result.findings.size() == kMostProblems) {
      result.findings.push_back(
          finding_of(source_.name(), "",
                     "and " + std::to_string(found_.size() - kMostProblems) + " more problems; fix these first"));
      break;
    }
    finding.place = place.option ? place.text : text_of_place(place.text, place.at);
    finding.line = finding.place + finding.line;
    result.findings.push_back(std::move(finding));
  }
  for (const auto& finding : result.findings) result.problems.push_back(finding.line);
  return result;
}

}  // namespace

Override override_of_set(const std::string& assignment) {
  const auto equals = assignment.find('=');
  return override_of("--set " + shown(assignment), assignment.substr(0, equals),
                     equals == std::string::npos ? std::nullopt : std::optional(assignment.substr(equals + 1)));
}

Override override_of(const std::string& option, const std::string& word, std::optional<std::string> value) {
  Override result{option, word, std::move(value)};
  if (word.find('.') != std::string::npos || find_key(word) != nullptr || is_table_name(word)) return result;
  const auto meant = keys_ending_in(word, settable_keys());
  if (meant.size() == 1) result.key = meant.front();
  if (meant.size() > 1) result.problem = several_keys(meant);
  return result;
}

JobFile compose(const JobSource& source, const std::vector<Override>& overrides, FileChecks checks) {
  if (!source.findings().empty()) {
    JobFile refused;
    for (const auto& finding : source.findings()) refused.problems.push_back(finding.line);
    refused.findings = source.findings();
    return refused;
  }
  Reader reader(source);
  reader.read(overrides, checks);
  return reader.finish();
}

}  // namespace jobfile
