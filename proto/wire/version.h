#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace proto {

// [Note: neighbouring versions]
// Messages grow by fields, and services by calls, so programs of neighbouring versions understand each other. The
// number of the wire counts what cannot be told that way: it grows when a call or a field goes, or means something
// else. `muster` sends its number with each call, and musterd answers with its own. Each program keeps understanding
// the number before its own, kOldest, and says which program is too old to one that speaks less. Ranks are never
// refused for their age: a rank that musterd cannot read any more would end a healthy training. What they send has to
// be read as long as a job may run.

inline constexpr int kWireVersion = 1;
/// The oldest number that this program understands.
inline constexpr int kOldestWireVersion = 1;
/// The name of both numbers in gRPC's metadata.
inline constexpr const char* kWireVersionKey = "muster-wire";

/// nullopt: the text is no number.
inline std::optional<int> wire_version_of(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

/// The number in gRPC's metadata of a caller or of an answer; nullopt: it tells none.
template <typename Metadata>
std::optional<int> told_wire_version(const Metadata& metadata) {
  const auto found = metadata.find(kWireVersionKey);
  return found == metadata.end() ? std::nullopt : wire_version_of({found->second.data(), found->second.size()});
}

}  // namespace proto
