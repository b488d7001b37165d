#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace agent::watch {

/// The scalars of one event of TensorBoard.
struct ScalarEvent {
  std::int64_t step = 0;
  std::int64_t at_ms = 0;                              // since 1970; 0: not told
  std::vector<std::pair<std::string, double>> values;  // by tag
  bool operator==(const ScalarEvent&) const = default;
};

/// What the bytes of an event file hold.
struct EventBytes {
  std::vector<ScalarEvent> events;  // those with scalars
  std::size_t taken = 0;            // bytes of whole records. What follows may come yet
  std::uint64_t skip = 0;           // further bytes to leave out: a record that is too long for a scalar
  std::string problem;              // why nothing can be read from here on; empty: nothing is wrong
  std::size_t bad_records = 0;      // whose checksum is wrong
};

/// Reads records from the beginning of `bytes`: as TFRecord has it, length (8 bytes, little endian), its masked
/// CRC-32C, the data, their masked CRC-32C. A record that is not whole yet is left for the next time.
EventBytes read_events(std::string_view bytes);

/// Reads tensorflow.Event in the wire format of protobuf: simple values and tensors of one number. nullopt: no such
/// message, or no scalar in it.
std::optional<ScalarEvent> parse_event(std::string_view message);

/// The longest record that is read. Images and graphs are longer, and are left out.
inline constexpr std::uint64_t kLongestRecord = 256 << 10;

}  // namespace agent::watch
