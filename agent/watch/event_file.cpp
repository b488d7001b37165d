#include "agent/watch/event_file.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/crc32c.h"

namespace agent::watch {
namespace {

constexpr std::size_t kLengthBytes = 8, kChecksumBytes = 4;
constexpr std::size_t kHeaderBytes = kLengthBytes + kChecksumBytes;
constexpr std::uint64_t kLongestOfAll = std::uint64_t{1} << 40;

/// A number in little endian, as the files have it on every machine.
template <class Number>
Number little_endian(std::string_view bytes) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < sizeof(Number); ++i) {
    number |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  if constexpr (sizeof(Number) == sizeof(std::uint64_t)) return std::bit_cast<Number>(number);
  if constexpr (sizeof(Number) == sizeof(std::uint32_t))
    return std::bit_cast<Number>(static_cast<std::uint32_t>(number));
  if constexpr (sizeof(Number) == sizeof(std::uint16_t))
    return std::bit_cast<Number>(static_cast<std::uint16_t>(number));
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

/// Whether a tensorflow.TensorShapeProto is that of one number.
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

}  // namespace agent::watch
