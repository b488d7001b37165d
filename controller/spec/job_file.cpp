#include "spec/job_file.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include "spec/suggest.h"
#include "spec/toml_value.h"

namespace spec {
namespace {

namespace fs = std::filesystem;

/// Where a value came from. Options sort after the file's lines.
struct Place {
  bool option = false;
  toml::source_position at{1, 1};
  std::string text;  // the option as typed
  std::string key;   // that the option sets
};

struct Located {
  Place place;
  std::string text;
};

std::string leaf_of(const std::string& path) {
  return path.substr(path.rfind('.') + 1);
}

std::string table_of(std::string_view path) {
  const auto dot = path.rfind('.');
  return std::string(dot == std::string_view::npos ? std::string_view() : path.substr(0, dot));
}

/// A key of the same table that is spelt nearly so, or else of another table.
std::string did_you_mean(const std::string& path) {
  std::map<std::string, std::vector<std::string>> leaves;
  std::set<std::string> tables;
  for (const auto& field : fields()) {
    leaves[table_of(field.key)].push_back(leaf_of(std::string(field.key)));
    if (!table_of(field.key).empty()) tables.insert(table_of(field.key));
  }
  const auto table = table_of(path), leaf = leaf_of(path);
  auto candidates = leaves[table];
  if (table.empty()) candidates.insert(candidates.end(), tables.begin(), tables.end());
  if (const auto near = nearest(leaf, candidates); !near.empty()) return table.empty() ? near : table + "." + near;
  if (const auto near = table.empty() ? "" : nearest(table, {tables.begin(), tables.end()}); !near.empty()) {
    if (const auto key = nearest(leaf, leaves[near]); !key.empty()) return near + "." + key;
  }
  for (const auto& [other, names] : leaves) {
    if (const auto near = nearest(leaf, names); !near.empty()) return other.empty() ? near : other + "." + near;
  }
  return {};
}

bool is_table_name(const std::string& path) {
  const auto& all = fields();
  return path.find('.') == std::string::npos &&
         std::any_of(all.begin(), all.end(), [&](const Field& f) { return f.key.starts_with(path + "."); });
}

/// Reads one parsed file into a spec and notes what is wrong, and where each key was given.
class Reader {
 public:
  Reader(std::string name, fs::path folder) : name_(std::move(name)), folder_(std::move(folder)) {}

  void read(toml::table table, const std::vector<Override>& overrides, FileChecks checks);
  JobFile finish();

 private:
  void apply(toml::table& root, const Override& override);
  void choose_program(const toml::table& root);
  void read_table(const toml::table& table, const std::string& prefix);
  void read_node(const std::string& path, const toml::key& key, const toml::node& node);
  void read_field(const Field& field, const toml::node& node);
  void read_words(const Field& field, const toml::node& node);
  void read_variables(const Field& field, const toml::node& node);
  void judge(FileChecks checks);

  Place place_of(const std::string& path, const toml::source_region& source) const;
  void refuse(const std::string& path, const Place& place, const std::optional<std::string>& value,
              const std::string& message);
  void refuse_unknown(const std::string& path, const Place& place);
  fs::path absolute(const std::string& path) const;

  std::string name_;
  fs::path folder_;
  muster::v1::JobSpec spec_;
  std::map<std::string, const Override*> overridden_;
  std::map<std::string, Place> given_;
  std::set<std::string> broken_;  // keys whose own value is wrong: what follows from it is not told as well
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
  found_.push_back({place, what + message});
}

void Reader::refuse_unknown(const std::string& path, const Place& place) {
  if (find_field(path) != nullptr) {  // "resources.nodes" = 1: TOML takes what is in quotes for one name
    return refuse("\"" + shown(path) + "\"", place, std::nullopt,
                  "unknown key; write it without quotes, or " + leaf_of(path) + " below [" + table_of(path) + "]");
  }
  const auto near = did_you_mean(path);
  refuse(shown(path), place, std::nullopt,
         near.empty() ? "unknown key; muster submit --help lists all" : "unknown key, did you mean " + near);
}

Place Reader::place_of(const std::string& path, const toml::source_region& source) const {
  for (auto key = path; !key.empty(); key = table_of(key)) {
    if (const auto found = overridden_.find(key); found != overridden_.end()) {
      return {true, {1, 1}, found->second->option, found->second->key};
    }
  }
  return {false, source.begin, "", ""};
}

fs::path Reader::absolute(const std::string& path) const {
  const char* home = std::getenv("HOME");
  if ((path == "~" || path.starts_with("~/")) && home != nullptr) {
    return (fs::path(home) / fs::path(path.substr(std::min<std::size_t>(2, path.size())))).lexically_normal();
  }
  return (folder_ / path).lexically_normal();
}

void Reader::apply(toml::table& root, const Override& override) {
  toml::table* table = &root;
  const auto leaf = leaf_of(override.key), parent = table_of(override.key);
  const bool shape_fine = !leaf.empty() && parent.find('.') == std::string::npos && override.key[0] != '.';
  if (shape_fine && !parent.empty()) {
    table = root.insert(parent, toml::table()).first->second.as_table();
  }
  const Place place{true, {1, 1}, override.option, override.key};
  if (!override.value) return refuse(override.key, place, std::nullopt, "want key=value");
  if (table == nullptr) return;  // the file has something else in its place, which is refused there
  const auto* field = find_field(override.key);
  if (!shape_fine || (field == nullptr && parent != "env" && !is_table_name(override.key))) {
    refuse_unknown(override.key, place);
    return;
  }
  static constexpr Field kVariable{.key = "env", .path = "env", .kind = Kind::kText};
  overridden_[override.key] = &override;
  insert_text(*table, leaf, parent == "env" ? &kVariable : field, *override.value);
}

/// Exactly one of `command` and the recipe's tables; with both, the recipe is read for problems of its own.
void Reader::choose_program(const toml::table& root) {
  for (const auto& [key, node] : root) {
    const std::string table(key.str());
    const bool of_recipe = std::any_of(fields().begin(), fields().end(), [&](const Field& f) {
      return is_recipe_field(f) && f.key.starts_with(table + ".");
    });
    if (!of_recipe) continue;
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
  const auto* field = find_field(path);
  if (leaf.find('.') == std::string::npos && field != nullptr) {
    given_[path] = place_of(path, node.source());
    read_field(*field, node);
  } else if (is_table_name(path)) {
    if (const auto* inner = node.as_table()) return read_table(*inner, path + ".");
    refuse(path, place_of(path, node.source()), shown(node), "want a table: [" + path + "] and its keys below");
    broken_.insert("");
  } else {
    refuse_unknown(path, place_of(path, key.source()));
  }
}

void Reader::read_field(const Field& field, const toml::node& node) {
  if (field.kind == Kind::kWords) return read_words(field, node);
  if (field.kind == Kind::kVariables) return read_variables(field, node);
  const std::string path(field.key);
  auto value = value_of(field, node);
  if (!value || !allowed(field, *value)) {
    std::string remedy;
    const bool unquoted = field.kind == Kind::kWhole || field.kind == Kind::kReal || field.kind == Kind::kFlag;
    if (const auto* text = node.as_string(); text != nullptr && unquoted) {
      const auto bare = parse(field, text->get());
      if (bare && allowed(field, *bare)) remedy = "; write it without quotes";
    }
    return refuse(path, given_[path], shown(node), "want " + wanted(field) + remedy);
  }
  if (field.kind == Kind::kPath) value = absolute(std::get<std::string>(*value)).native();
  set(spec_, field, *value);
}

void Reader::read_words(const Field& field, const toml::node& node) {
  const std::string path(field.key);
  const auto* words = node.as_array();
  if (broken_.contains(path)) return;
  auto* command = spec_.mutable_command();
  if (words == nullptr) return refuse(path, given_[path], shown(node), "want " + wanted(field));
  for (const auto& word : *words) {
    const auto* text = word.as_string();
    if (text == nullptr) {
      return refuse(path, place_of(path, word.source()), shown(word), "want a text in quotes, as every argument");
    }
    command->add_argv(text->get());
  }
}

void Reader::read_variables(const Field& field, const toml::node& node) {
  const auto* table = node.as_table();
  if (table == nullptr) return refuse("env", given_["env"], shown(node), "want " + wanted(field));
  for (const auto& [key, value] : *table) {
    const auto path = "env." + std::string(key.str());
    given_[path] = place_of(path, value.source());
    if (const auto* text = value.as_string()) {
      (*spec_.mutable_env())[std::string(key.str())] = text->get();
    } else {
      refuse(path, given_[path], shown(value), "want a text in quotes");
    }
  }
}

/// The checks over the whole spec, without those that rest on a value already refused.
void Reader::judge(FileChecks checks) {
  fill_defaults(spec_);
  for (const auto& problem : validate(spec_, checks)) {
    const auto broken = [&](const std::string& key) { return broken_.contains(key); };
    if (broken(problem.field) || std::any_of(problem.related.begin(), problem.related.end(), broken)) continue;
    Place place;
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
    found_.push_back({place, to_string(text)});
  }
}

void Reader::read(toml::table table, const std::vector<Override>& overrides, FileChecks checks) {
  for (const auto& override : overrides) apply(table, override);
  choose_program(table);
  read_table(table, "");
  if (spec_.working_folder().empty() && !broken_.contains("working_folder")) {
    spec_.set_working_folder(folder_.lexically_normal().native());
  }
  judge(checks);
}

JobFile Reader::finish() {
  std::stable_sort(found_.begin(), found_.end(), [](const Located& a, const Located& b) {
    return std::tuple(a.place.option, a.place.at.line, a.place.at.column) <
           std::tuple(b.place.option, b.place.at.line, b.place.at.column);
  });
  JobFile result{std::move(spec_), {}};
  for (const auto& [place, text] : found_) {
    if (result.problems.size() == kMostProblems) {
      result.problems.push_back(name_ + ": and " + std::to_string(found_.size() - kMostProblems) +
                                " more problems; mend these first");
      break;
    }
    const auto where =
        place.option ? place.text : name_ + ":" + std::to_string(place.at.line) + ":" + std::to_string(place.at.column);
    result.problems.push_back(where + ": " + text);
  }
  return result;
}

/// What the parser says, and what to do about the slips that people make most.
std::string syntax_problem(std::string_view description) {
  struct Remedy {
    std::string_view says, remedy;
  };
  static constexpr Remedy kRemedies[]{
      {"cannot redefine existing", "it is given twice: remove one of them"},
      {"could not determine value type", "a text needs quotes"},
      {"expected 'true'", "write true or false in small letters, and texts in quotes"},
      {"expected 'false'", "write true or false in small letters, and texts in quotes"},
      {"is not representable", "write a smaller number"},
      {"could not be interpreted", "write a smaller number"},
      {"invalid utf-8", "save the file as UTF-8"},
      {"Error while parsing string", "close the quotes on the same line"},
  };
  auto text = "not TOML: " + shown(description);
  for (const auto& [says, remedy] : kRemedies) {
    if (description.find(says) != std::string_view::npos) return text + "; " + std::string(remedy);
  }
  return text;
}

JobFile refused(std::string problem) {
  return {{}, {std::move(problem)}};
}

}  // namespace

Override override_of_set(const std::string& assignment) {
  const auto equals = assignment.find('=');
  Override result{"--set " + shown(assignment), assignment.substr(0, equals), std::nullopt};
  if (equals != std::string::npos) result.value = assignment.substr(equals + 1);
  return result;
}

JobFile parse_job_file(std::string_view text, const std::string& name, const fs::path& folder,
                       const std::vector<Override>& overrides, FileChecks checks) {
  if (text.size() > kMostJobFileBytes) return refused(name + ":1:1: larger than 1 MiB; this is no job file");
  toml::table table;
  try {
    table = toml::parse(text);
  } catch (const toml::parse_error& error) {
    const auto at = error.source().begin;
    return refused(name + ":" + std::to_string(at.line) + ":" + std::to_string(at.column) + ": " +
                   syntax_problem(error.description()));
  }
  Reader reader(name, folder);
  reader.read(std::move(table), overrides, checks);
  return reader.finish();
}

JobFile read_job_file(const fs::path& file, const std::vector<Override>& overrides, FileChecks checks) {
  const auto name = shown(file.native());
  std::error_code error;
  const auto kind = fs::status(file, error);
  if (!fs::exists(kind)) return refused(name + ": there is no such job file; examples/ holds some to start from");
  if (fs::is_directory(kind)) return refused(name + ": this is a folder; want a job file");
  std::ifstream in(file, std::ios::binary);
  std::string text(kMostJobFileBytes + 1, '\0');
  if (in) in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in.is_open() || in.bad()) return refused(name + ": cannot be read; check its permissions");
  text.resize(static_cast<std::size_t>(in.gcount()));
  return parse_job_file(text, name, fs::absolute(file).parent_path(), overrides, checks);
}

}  // namespace spec
