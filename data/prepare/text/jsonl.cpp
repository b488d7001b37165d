#include "data/prepare/text/text_source.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include "base/numbers.h"

namespace data::prepare {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr std::size_t kMostLineBytes = 64 << 20;
constexpr std::size_t kMostLabels = 65'536;
constexpr std::size_t kReadBytes = 1 << 20;

/// A byte range of a file, for one part.
struct Range {
  std::size_t file;
  std::int64_t begin, end;
};

/// The number of the line that starts at this byte, from 1. Read only for errors.
std::int64_t line_number(const InputFile& file, std::int64_t offset) {
  std::string piece(kReadBytes, '\0');
  std::int64_t lines = 1;
  for (std::int64_t at = 0; at < offset;) {
    const auto got = file.read(
        at, std::span(piece).first(static_cast<std::size_t>(std::min<std::int64_t>(kReadBytes, offset - at))));
    if (got == 0) break;
    lines += std::count(piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(got), '\n');
    at += static_cast<std::int64_t>(got);
  }
  return lines;
}

/// The problem with a line.
struct Damage {
  std::string finding;
};

/// Where in the files a line is, for errors.
struct Place {
  const fs::path& path;
  const InputFile& file;
  std::int64_t offset;

  [[noreturn]] void refuse(const std::string& finding) const { throw Damage{finding}; }
  std::string told(const std::string& finding) const {
    return path.native() + ":" + std::to_string(line_number(file, offset)) + ": " + finding;
  }
};

using OnDamaged = std::function<void(const std::function<std::string()>& text)>;

/// The result of `work` for a line. nullopt: the line is damaged and has been told to `on_damaged`. Without that it
/// throws std::runtime_error that names the line.
template <class Work>
auto unless_damaged(const Place& place, const OnDamaged& on_damaged, const Work& work)
    -> std::optional<decltype(work())> {
  try {
    return work();
  } catch (const Damage& damage) {
    const auto text = [&] { return place.told(damage.finding); };
    if (!on_damaged) throw std::runtime_error(text());
    on_damaged(text);
    return std::nullopt;
  }
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

/// Calls `take(line, place)` for each line that starts in [begin, end), without its line end. A line that is too long
/// is damaged.
template <class Take>
void for_lines(const fs::path& path, std::int64_t begin, std::int64_t end, const OnDamaged& on_damaged,
               const Take& take) {
  const auto too_long = [&](const Place& place) {
    unless_damaged(place, on_damaged, [&]() -> bool {
      place.refuse("the line has more than " + std::to_string(kMostLineBytes >> 20) +
                   " MiB; want one JSON object a line: split it");
    });
  };
  const InputFile file(path);
  // The byte before the range tells whether a line starts at `begin`.
  std::int64_t at = begin == 0 ? 0 : begin - 1;
  bool in_earlier_line = begin > 0;
  std::string held;  // bytes from `at` on that are read and not used
  std::size_t searched = 0;
  for (;;) {
    const auto newline = held.find('\n', searched);
    if (newline == std::string::npos) {
      if (in_earlier_line) {  // nothing of it is needed
        at += static_cast<std::int64_t>(held.size());
        held.clear();
      } else if (held.size() > kMostLineBytes) {
        if (at >= end) return;
        too_long(Place{path, file, at});
        in_earlier_line = true;
        continue;
      }
      searched = held.size();
      if (at >= end) return;
      held.resize(searched + kReadBytes);
      held.resize(searched + file.read(at + static_cast<std::int64_t>(searched), std::span(held).subspan(searched)));
      if (held.size() > searched) continue;
      // The file's last line has no line end.
      if (!in_earlier_line && at < end && !is_blank(held)) take(std::string_view(held), Place{path, file, at});
      return;
    }
    // Use all whole lines that are there, then drop them at once.
    std::size_t used = 0;
    for (auto stop = newline; stop != std::string::npos; stop = held.find('\n', used)) {
      const auto line_at = at + static_cast<std::int64_t>(used);
      const auto line = std::string_view(held).substr(used, stop - used);
      if (!std::exchange(in_earlier_line, false)) {
        if (line_at >= end) return;
        if (line.size() > kMostLineBytes) {
          too_long(Place{path, file, line_at});
        } else if (!is_blank(line)) {
          take(line, Place{path, file, line_at});
        }
      }
      used = stop + 1;
    }
    held.erase(0, used);
    at += static_cast<std::int64_t>(used);
    searched = held.size();
  }
}

/// The line with other numbers instead of NaN, Infinity and -Infinity, which are not JSON. No label is such a number,
/// and nothing else reads one. The length stays, so that the place of a mistake is right.
std::string without_nan(std::string_view line) {
  static constexpr std::array<std::string_view, 3> kWords{"-Infinity", "Infinity", "NaN"};
  constexpr std::string_view kNumber = "0.5";
  std::string out(line);
  bool is_inside = false;  // of a string
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (is_inside && out[i] == '\\')
      ++i;
    else if (out[i] == '"')
      is_inside = !is_inside;
    if (is_inside) continue;
    for (const auto word : kWords) {
      if (!std::string_view(out).substr(i).starts_with(word)) continue;
      std::fill_n(out.begin() + static_cast<std::ptrdiff_t>(i), word.size(), ' ');
      std::copy(kNumber.begin(), kNumber.end(), out.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return out;
}

Json parsed(std::string_view line) {
  try {
    return Json::parse(line);
  } catch (const Json::parse_error&) {
    return Json::parse(without_nan(line));
  }
}

Json parse(std::string_view line, const Place& place) {
  Json json;
  try {
    json = parsed(line);
  } catch (const Json::parse_error& error) {
    place.refuse("is not JSON from byte " + std::to_string(error.byte) +
                 " of the line on; want one JSON object of UTF-8 a line");
  } catch (const Json::exception& error) {  // a number that no double holds
    place.refuse(std::string("cannot be read (") + error.what() + "); correct the line");
  }
  if (!json.is_object()) place.refuse(std::string("is a JSON ") + json.type_name() + "; want an object {...} a line");
  return json;
}

/// The value of a key, or null. A dot leads into an object if no key has the whole name.
const Json* find(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  if (const auto found = object.find(key); found != object.end()) return &*found;
  for (auto dot = key.find('.'); dot != std::string_view::npos; dot = key.find('.', dot + 1)) {
    const auto inner = object.find(key.substr(0, dot));
    if (inner == object.end()) continue;
    if (const auto* value = find(*inner, key.substr(dot + 1))) return value;
  }
  return nullptr;
}

std::string keys_of(const Json& object) {
  std::string out;
  int count = 0;
  for (const auto& [key, value] : object.items()) {
    if (++count > 8) return out + ", ...";
    out += (out.empty() ? "" : ", ") + key;
  }
  return out.empty() ? "none" : out;
}

const Json& need(const Json& object, const std::string& key, const Place& place) {
  const auto* value = find(object, key);
  if (value == nullptr) {
    place.refuse("there is no key \"" + key + "\" (keys: " + keys_of(object) +
                 "); add it to the line, or name the key that the file has");
  }
  return *value;
}

const std::string& text_of(const Json& object, const std::string& key, const Place& place) {
  const auto& value = need(object, key, place);
  if (!value.is_string()) {
    place.refuse("the key \"" + key + "\" is a JSON " + value.type_name() + "; want a string");
  }
  return value.get_ref<const std::string&>();
}

std::string label_of(const Json& object, const std::string& key, const Place& place) {
  const auto& value = need(object, key, place);
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_integer() || value.is_boolean()) return value.dump();
  // pandas writes whole numbers so when one of a column is missing.
  constexpr double kMostWhole = 9007199254740992.0;  // 2^53: larger ones have neighbours that are equal as doubles
  if (const auto number = value.is_number() ? value.get<double>() : 0.5;
      number == std::floor(number) && std::abs(number) <= kMostWhole)
    return std::to_string(static_cast<std::int64_t>(number));
  place.refuse("the key \"" + key + "\" is a JSON " + value.type_name() +
               "; want a label: a string, a whole number, true or false");
}

/// Every label of the files' records, sorted.
std::vector<std::string> labels_of(const JsonlOptions& options) {
  std::set<std::string> found;
  // The records tell what is damaged, so that nothing is told twice.
  const OnDamaged on_damaged = options.on_damaged ? OnDamaged([](const auto&) {}) : OnDamaged();
  for (const auto& path : options.files) {
    for_lines(path, 0, INT64_MAX, on_damaged, [&](std::string_view line, const Place& place) {
      auto label = unless_damaged(place, on_damaged, [&] {
        const auto json = parse(line, place);
        text_of(json, options.text_key, place);  // a line that makes no record makes no label
        return label_of(json, options.label_key, place);
      });
      if (label) found.insert(*std::move(label));
      if (found.size() > kMostLabels) {
        throw std::runtime_error(place.told("the files have more than " + std::to_string(kMostLabels) +
                                            " labels in the key \"" + options.label_key +
                                            "\"; name the key of the label"));
      }
    });
  }
  std::vector<std::string> labels(found.begin(), found.end());
  const auto number = [](const std::string& label) { return base::whole_number<std::int64_t>(label); };
  if (std::ranges::all_of(labels, [&](const auto& label) { return number(label).has_value(); })) {
    std::ranges::stable_sort(labels, {}, number);
  }
  return labels;
}

/// The parts, and a text that changes when a file does.
std::vector<Range> cut(const JsonlOptions& options, std::string& states) {
  std::vector<Range> ranges;
  std::int64_t left = options.most_bytes > 0 ? options.most_bytes : INT64_MAX;
  for (std::size_t i = 0; i < options.files.size(); ++i) {
    const InputFile file(options.files[i]);
    std::string mark(2, '\0');
    if (file.read(0, mark) == 2 && mark == "\x1f\x8b") {
      throw std::runtime_error(options.files[i].native() + ": is packed with gzip; unpack it first (gunzip)");
    }
    states += " " + fs::absolute(options.files[i]).lexically_normal().native() + ":" + file.state();
    const auto used = std::min(left, file.bytes());
    for (std::int64_t begin = 0; begin < used; begin += options.part_bytes) {
      ranges.push_back({i, begin, std::min(used, begin + options.part_bytes)});
    }
    left -= used;
  }
  return ranges;
}

std::string description_of(const JsonlOptions& options, const std::string& states) {
  std::string out = "jsonl text=" + options.text_key;
  if (options.kind == RecordKind::kPair) out += " target=" + options.target_key;
  if (options.kind == RecordKind::kLabelled) out += " label=" + options.label_key;
  return out + " part_bytes=" + std::to_string(options.part_bytes) +
         (options.most_bytes > 0 ? " max_bytes=" + std::to_string(options.most_bytes) : "") + states;
}

/// Turns lines into records. `numbers`: of the labels.
class Reader {
 public:
  explicit Reader(JsonlOptions options) : options_(std::move(options)) {
    for (const auto& label : options_.labels) {
      if (!numbers_.emplace(label, static_cast<std::int32_t>(numbers_.size())).second) {
        throw std::runtime_error("labels: \"" + label + "\" is named twice; name each label once");
      }
    }
  }

  void read(const Range& range, const RecordSink& sink) const {
    const auto take = [&](std::string_view line, const Place& place) {
      Json json;  // the record's texts lie in it
      const auto record = unless_damaged(place, options_.on_damaged, [&] {
        json = parse(line, place);
        TextRecord out{text_of(json, options_.text_key, place)};
        if (options_.kind == RecordKind::kPair) out.target = text_of(json, options_.target_key, place);
        if (options_.kind == RecordKind::kLabelled) out.label = number_of(json, place);
        return out;
      });
      if (record) sink(*record);
    };
    for_lines(options_.files[range.file], range.begin, range.end, options_.on_damaged, take);
  }

 private:
  std::int32_t number_of(const Json& json, const Place& place) const {
    const auto label = label_of(json, options_.label_key, place);
    const auto found = numbers_.find(label);
    if (found == numbers_.end()) {
      place.refuse("the label \"" + label + "\" is not one of the " + std::to_string(numbers_.size()) +
                   " labels given; add it to them, or correct the line");
    }
    return found->second;
  }

  JsonlOptions options_;
  std::map<std::string, std::int32_t, std::less<>> numbers_;
};

}  // namespace

TextSource open_jsonl(const JsonlOptions& options) {
  if (options.files.empty()) throw std::runtime_error("jsonl: no file is named; name at least one file");
  check_range("part bytes", options.part_bytes, 1, std::int64_t{1} << 40);
  check_range("max bytes", options.most_bytes, 0, std::int64_t{1} << 50);
  check_range("labels", std::ssize(options.labels), 0, kMostLabels);
  std::string states;
  auto ranges = cut(options, states);
  auto complete = options;
  if (options.kind == RecordKind::kLabelled && options.labels.empty()) complete.labels = labels_of(options);
  auto labels = options.kind == RecordKind::kLabelled ? complete.labels : std::vector<std::string>{};
  const auto reader = std::make_shared<const Reader>(std::move(complete));
  std::string name =
      options.files.size() == 1 ? options.files[0].native() : std::to_string(options.files.size()) + " files";
  const auto parts = std::ssize(ranges);
  return in_parts({options.kind, description_of(options, states), std::move(name), std::move(labels)}, parts, 1,
                  [reader, ranges = std::move(ranges)](std::int64_t part, const RecordSink& sink) {
                    reader->read(ranges[static_cast<std::size_t>(part)], sink);
                  });
}

}  // namespace data::prepare
