#include "worker/train/hooks/event_bytes.h"

#include <bit>
#include <cstring>

#include "base/checksum.h"

namespace worker {
namespace {

static_assert(std::endian::native == std::endian::little, "records are little endian");

template <class Number>
void add_bytes(std::string& out, Number number) {
  char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  out.append(bytes, sizeof number);
}

void add_varint(std::string& out, std::uint64_t number) {
  for (; number >= 0x80; number >>= 7) out.push_back(static_cast<char>(number | 0x80));
  out.push_back(static_cast<char>(number));
}

// The types of fields on the wire.
enum class Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void add_tag(std::string& out, int field, Wire type) {
  add_varint(out, static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(type));
}

void add_text(std::string& out, int field, const std::string& text) {
  add_tag(out, field, Wire::kBytes);
  add_varint(out, text.size());
  out += text;
}

// Numbers of fields: Event{wall_time, step, file_version, summary}, Summary{value}, Value{tag, simple_value}.
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kValue = 1, kTag = 1, kSimpleValue = 2;

std::string event_at(double at_s) {
  std::string event;
  add_tag(event, kWallTime, Wire::kFixed64);
  add_bytes(event, at_s);
  return event;
}

std::string record(const std::string& event) {
  std::string length, out;
  add_bytes(length, static_cast<std::uint64_t>(event.size()));
  out = length;
  add_bytes(out, base::masked_crc32c(length));
  out += event;
  add_bytes(out, base::masked_crc32c(event));
  return out;
}

}  // namespace

std::string first_event(double at_s) {
  std::string event = event_at(at_s);
  add_text(event, kFileVersion, "brain.Event:2");
  return record(event);
}

std::string scalar_event(double at_s, std::int64_t step, const std::vector<agent::rank::SeriesValue>& values) {
  std::string event = event_at(at_s), summary;
  add_tag(event, kStep, Wire::kVarint);
  add_varint(event, static_cast<std::uint64_t>(step));
  for (const auto& [series, value] : values) {
    std::string one;
    add_text(one, kTag, series);
    add_tag(one, kSimpleValue, Wire::kFixed32);
    add_bytes(one, static_cast<float>(value));
    add_text(summary, kValue, one);
  }
  add_text(event, kSummary, summary);
  return record(event);
}

}  // namespace worker
