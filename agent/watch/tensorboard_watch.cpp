#include "agent/watch/tensorboard_watch.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "agent/watch/folder_walk.h"
#include "base/checksum.h"
#include "spec/series.h"

namespace agent::watch {
namespace {

constexpr std::size_t kLengthBytes = 8, kChecksumBytes = 4;
constexpr std::size_t kHeaderBytes = kLengthBytes + kChecksumBytes;
constexpr std::uint64_t kLongestOfAll = std::uint64_t{1} << 40;

/// A number as the files have it: in little endian, as machines that muster builds for have it in memory.
template <class Number>
Number little_endian(std::string_view bytes) {
  static_assert(std::endian::native == std::endian::little);
  Number number;
  std::memcpy(&number, bytes.data(), sizeof number);
  return number;
}

/// One field of a message.
struct Field {
  std::uint32_t number = 0;
  std::uint32_t kind = 0;
  std::uint64_t value = 0;  // of a varint
  std::string_view bytes;   // of any other kind
};
enum Kind : std::uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

/// Reads the fields of a message in their order.
class Fields {
 public:
  explicit Fields(std::string_view message) : rest_(message) {}

  /// nullopt: the end, or bytes that make no sense.
  std::optional<Field> next() {
    const auto key = varint();
    if (!key || (*key >> 3) > std::numeric_limits<std::uint32_t>::max()) return fail();
    Field field{static_cast<std::uint32_t>(*key >> 3), static_cast<std::uint32_t>(*key & 7), 0, {}};
    std::optional<std::uint64_t> size;
    switch (field.kind) {
      case kVarint:
        if (const auto value = varint()) {
          field.value = *value;
          return field;
        }
        return fail();
      case kFixed64:
        size = 8;
        break;
      case kFixed32:
        size = 4;
        break;
      case kBytes:
        size = varint();
        break;
      default:
        break;
    }
    if (!size || *size > rest_.size()) return fail();
    field.bytes = rest_.substr(0, *size);
    rest_.remove_prefix(*size);
    return field;
  }

  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < rest_.size() && i < 10; ++i) {
      const auto byte = static_cast<unsigned char>(rest_[i]);
      value |= std::uint64_t{byte & 0x7fU} << (7 * i);
      if ((byte & 0x80) == 0) {
        rest_.remove_prefix(i + 1);
        return value;
      }
    }
    return std::nullopt;
  }

 private:
  std::optional<Field> fail() {
    rest_ = {};
    return std::nullopt;
  }
  std::string_view rest_;
};

double half_of(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 0x1f, fraction = bits & 0x3ff;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return fraction != 0 ? std::nan("") : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}
double bfloat16_of(std::uint16_t bits) {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

// tensorflow.DataType
enum Type : std::uint64_t { kFloat = 1, kDouble = 2, kInt32 = 3, kInt64 = 9, kBfloat16 = 14, kHalf = 19 };

std::optional<double> number_in(std::uint64_t type, std::string_view bytes) {
  const auto has = [&](std::size_t size) { return bytes.size() == size; };
  if (type == kFloat && has(4)) return little_endian<float>(bytes);
  if (type == kDouble && has(8)) return little_endian<double>(bytes);
  if (type == kInt32 && has(4)) return little_endian<std::int32_t>(bytes);
  if (type == kInt64 && has(8)) return static_cast<double>(little_endian<std::int64_t>(bytes));
  if (type == kHalf && has(2)) return half_of(little_endian<std::uint16_t>(bytes));
  if (type == kBfloat16 && has(2)) return bfloat16_of(little_endian<std::uint16_t>(bytes));
  return std::nullopt;
}

/// A whole number, or the only one of a packed list.
std::optional<std::int64_t> whole_of(const Field& field) {
  if (field.kind == kVarint) return static_cast<std::int64_t>(field.value);
  Fields packed(field.bytes);
  const auto value = packed.varint();
  return value && !packed.varint() ? std::optional(static_cast<std::int64_t>(*value)) : std::nullopt;
}

/// True if a tensorflow.TensorShapeProto is that of one number.
bool is_of_one(std::string_view shape) {
  Fields fields(shape);
  while (const auto field = fields.next()) {
    if (field->number != 2) continue;
    Fields dimension(field->bytes);
    std::int64_t size = 0;
    while (const auto part = dimension.next()) {
      if (part->number == 1 && part->kind == kVarint) size = static_cast<std::int64_t>(part->value);
    }
    if (size != 1) return false;
  }
  return true;
}

/// The number of a tensorflow.TensorProto that holds one.
std::optional<double> number_of_tensor(std::string_view tensor) {
  std::uint64_t type = 0;
  std::optional<double> number;
  Fields fields(tensor);
  while (const auto field = fields.next()) {
    switch (field->number) {
      case 1:
        type = field->value;
        break;
      case 2:
        if (!is_of_one(field->bytes)) return std::nullopt;
        break;
      case 4:  // tensor_content
        number = number_in(type, field->bytes);
        break;
      case 5:  // float_val
        number = number_in(kFloat, field->bytes);
        break;
      case 6:  // double_val
        number = number_in(kDouble, field->bytes);
        break;
      case 7:   // int_val
      case 10:  // int64_val
        if (const auto whole = whole_of(*field)) number = static_cast<double>(*whole);
        break;
      case 13:  // half_val: the bits
        if (const auto bits = whole_of(*field)) {
          const auto half = static_cast<std::uint16_t>(*bits);
          number = type == kBfloat16 ? bfloat16_of(half) : half_of(half);
        }
        break;
      default:
        break;
    }
  }
  return number;
}

/// One tensorflow.Summary.Value.
void read_value(std::string_view message, ScalarEvent& event) {
  std::string tag;
  std::optional<double> number;
  Fields fields(message);
  while (const auto field = fields.next()) {
    if (field->number == 1 && field->kind == kBytes) tag = field->bytes;
    if (field->number == 2 && field->kind == kFixed32) number = little_endian<float>(field->bytes);
    if (field->number == 8 && field->kind == kBytes) number = number_of_tensor(field->bytes);
  }
  if (!tag.empty() && number) event.values.emplace_back(std::move(tag), *number);
}

}  // namespace

std::optional<ScalarEvent> parse_event(std::string_view message) {
  ScalarEvent event;
  Fields fields(message);
  while (const auto field = fields.next()) {
    if (field->number == 1 && field->kind == kFixed64) {
      const auto seconds = little_endian<double>(field->bytes);
      if (seconds > 0 && seconds < 1e12) event.at_ms = static_cast<std::int64_t>(seconds * 1000);
    }
    if (field->number == 2 && field->kind == kVarint) event.step = static_cast<std::int64_t>(field->value);
    if (field->number != 5 || field->kind != kBytes) continue;
    Fields values(field->bytes);
    while (const auto value = values.next()) {
      if (value->number == 1 && value->kind == kBytes) read_value(value->bytes, event);
    }
  }
  if (event.values.empty()) return std::nullopt;
  return event;
}

EventBytes read_events(std::string_view bytes) {
  EventBytes out;
  while (bytes.size() - out.taken >= kHeaderBytes) {
    const auto rest = bytes.substr(out.taken);
    const auto length = little_endian<std::uint64_t>(rest);
    if (little_endian<std::uint32_t>(rest.substr(kLengthBytes)) != base::masked_crc32c(rest.substr(0, kLengthBytes))) {
      out.problem = "the checksum of a record's length is wrong";
      return out;
    }
    if (length > kLongestOfAll) {
      out.problem = "a record's length makes no sense";
      return out;
    }
    if (length > kLongestRecord) {
      out.taken += kHeaderBytes;
      out.skip = length + kChecksumBytes;
      return out;
    }
    if (rest.size() < kHeaderBytes + length + kChecksumBytes) return out;
    const auto data = rest.substr(kHeaderBytes, length);
    out.taken += kHeaderBytes + length + kChecksumBytes;
    if (little_endian<std::uint32_t>(rest.substr(kHeaderBytes + length)) != base::masked_crc32c(data)) {
      ++out.bad_records;
    } else if (auto event = parse_event(data)) {
      out.events.push_back(std::move(*event));
    }
  }
  return out;
}

namespace {

constexpr std::int64_t kLargestStep = 9'000'000'000'000'000;

struct EventFile {
  std::string path;
  std::uint64_t size = 0;
  std::int64_t changed_ns = 0;
};

/// True for the names by which TensorBoard itself knows its files.
bool is_event_file(const std::string& name) {
  return name.find("tfevents") != std::string::npos;
}

std::string folder_of(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}
std::string last_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

bool is_held_out_folder(const std::string& name) {
  constexpr std::array<std::string_view, 7> kNames{"validation", "val", "valid", "eval", "evaluation", "test", "dev"};
  return std::ranges::find(kNames, name) != kNames.end();
}

}  // namespace

Found TensorboardWatch::look(const Moment& moment) {
  if (moment.end || moment.now >= next_search_) {
    const auto began = std::chrono::steady_clock::now();
    search();
    next_search_ = moment.now + kPauses * (std::chrono::steady_clock::now() - began);
    if (moment.end && files_.empty()) complain("report.tensorboard: there is no event file in " + folder_);
  }
  Found found;
  if (std::exchange(is_first_look_, false)) return found;
  std::size_t budget = kMostAtOnce;
  const auto first = files_.lower_bound(next_file_);
  const auto read_all = [&](auto from, auto until) {
    for (; from != until; ++from) {
      if (!from->second.is_followed) continue;
      if (!read(from->first, from->second, budget, found.reports)) continue;
      next_file_ = from->first + '\0';  // the next look begins behind this file
      found.more = true;
      if (budget == 0) return;
    }
  };
  read_all(first, files_.end());
  if (budget > 0) read_all(files_.begin(), first);
  // Several files: in the order in which the program wrote.
  std::ranges::stable_sort(found.reports, {}, [](const Report& report) { return report.at_ms.value_or(0); });
  return found;
}

void TensorboardWatch::search() {
  std::size_t budget = kMostEntries;
  std::vector<EventFile> there;
  walk_folder(folder_, kDeepest, Links::kFollowed, budget, [&there](const FolderEntry& entry) {
    if (!S_ISREG(entry.status.st_mode) || !is_event_file(entry.name)) return;
    there.push_back({entry.path, static_cast<std::uint64_t>(entry.status.st_size), changed_ns(entry.status)});
  });
  if (budget == 0) {
    complain("report.tensorboard: there are over " + std::to_string(kMostEntries) +
             " files in the folder; some are left out");
  }
  if (there.size() > kMostFiles && !is_first_look_) {
    std::ranges::sort(there, std::greater(), &EventFile::changed_ns);
    there.resize(kMostFiles);
  }
  for (const auto& file : there) files_.try_emplace(file.path, File{.offset = is_first_look_ ? file.size : 0});
}

bool TensorboardWatch::read(const std::string& path, File& file, std::size_t& budget, std::vector<Report>& out) {
  const auto part = read_part(path, file.offset, budget);
  if (part.size < file.offset) file.offset = 0;  // written anew under the same name
  if (part.bytes.empty()) return false;
  budget -= part.bytes.size();
  const bool is_cut = file.offset + part.bytes.size() < part.size;
  const auto read = read_events(part.bytes);
  for (const auto& event : read.events) {
    auto report = report_of(event, folder_of(path));
    if (report.step->values.empty() || event.step < 0 || event.step > kLargestStep) continue;
    const bool joins = !out.empty() && out.back().step->step == event.step && out.back().at_ms == report.at_ms;
    if (joins) {
      auto& values = out.back().step->values;
      values.insert(values.end(), report.step->values.begin(), report.step->values.end());
    } else {
      out.push_back(std::move(report));
    }
  }
  file.offset += read.taken + read.skip;
  if (read.bad_records > 0) complain("report.tensorboard: " + path + " has records whose checksum is wrong");
  file.bad_looks = read.problem.empty() || read.taken > 0 ? 0 : file.bad_looks + 1;
  if (file.bad_looks == kMostBadLooks) {
    file.is_followed = false;
    complain("report.tensorboard: " + path + " is read no further: " + read.problem);
  }
  return read.problem.empty() && (is_cut || read.skip > 0) && file.offset < part.size;
}

Report TensorboardWatch::report_of(const ScalarEvent& event, const std::string& folder) {
  Report report;
  report.step.emplace();
  report.step->step = event.step;
  if (event.at_ms > 0) report.at_ms = event.at_ms;
  for (const auto& [tag, value] : event.values) {
    const auto name = series_of(tag, folder);
    if (name.empty()) continue;
    report.step->values.emplace_back(name, std::isfinite(value) ? value : std::numeric_limits<double>::quiet_NaN());
  }
  return report;
}

std::string TensorboardWatch::series_of(const std::string& tag, const std::string& folder) {
  const auto split = last_name(folder);
  auto name = series_of_tag(tag);
  if (name.empty()) {
    complain("report.tensorboard: a tag is no name of a series, since it is empty or longer than " +
             std::to_string(spec::kLongestSeries) + " characters");
    return {};
  }
  const bool is_held_out = folder != folder_ && is_held_out_folder(split);
  if (!is_held_out) {
    if (tag_folders_.size() < spec::kMostSeries) tag_folders_.try_emplace(name, folder);
    const auto first = tag_folders_.find(name);
    if (first == tag_folders_.end() || first->second == folder) return name;
  }
  return series_of_tag(split + "/" + name);
}

std::string series_of_tag(std::string_view tag) {
  std::string name;
  for (const char c : tag) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    name += letter || std::string_view("._-/@+:%").find(c) != std::string_view::npos ? c : '_';
  }
  const auto begin = name.find_first_not_of('/');
  if (begin == std::string::npos) return {};
  name = name.substr(begin, name.find_last_not_of('/') - begin + 1);
  return spec::is_series_name(name) ? name : std::string();
}

}  // namespace agent::watch
