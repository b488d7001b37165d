#include "spec/jobfile/sweep_axis.h"

#include <algorithm>
#include <charconv>

#include "base/whole_number.h"
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
  const auto& value = *node.as_floating_point();
  double read = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), read);
  const bool same = error == std::errc() && end == text.data() + text.size() && read == value.get();
  return same ? text : shown(node);
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

}  // namespace jobfile
