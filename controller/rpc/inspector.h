#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace rpc {

/// Limits of what one connection may make a gRPC server keep.
struct ReadLimits {
  /// The longest message. gRPC 1.51 compares a message with its limit only when the whole message is there.
  std::size_t message = 0;
  /// Bytes received since no message was unfinished.
  std::size_t unfinished = 0;
  /// Calls whose message is missing or unfinished, and of a rank's connection all open calls (Watched::begin_call).
  /// gRPC 1.51 bounds open calls only for a client that has acknowledged the server's settings.
  std::size_t calls = 0;
  std::size_t header_block = 0;
  /// How long a message may be missing or unfinished.
  std::chrono::milliseconds patience{};
  /// How many calls may begin at once, and as many again in each kBurstEvery. 0: any number. gRPC keeps a call until
  /// its handler has run and its client has been told.
  std::size_t burst = 0;
  static constexpr std::chrono::milliseconds kBurstEvery{250};
};

/// Reads what a client sends to a gRPC server after its greeting, as far as memory goes: which calls have no message
/// yet, and how much of unfinished messages is there. See ReadGuard. Only counts: keeps no byte. Not thread-safe.
class Inspector {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit Inspector(const ReadLimits& limits) : limits_(limits) {}

  /// Reads on. Returns what breaks a limit, or null. After a fault the connection must be closed.
  const char* take(std::string_view bytes, Time now);
  /// Bytes that gRPC may keep of this connection's unfinished messages.
  std::size_t held() const { return held_; }
  /// A message has been missing or unfinished for too long.
  bool is_overdue(Time now) const;

 private:
  static constexpr std::size_t kFrameHeader = 9;
  static constexpr std::size_t kPrefix = 5;

  /// A call whose message is missing or unfinished.
  struct Call {
    std::uint32_t stream = 0;
    Time since{};
    std::size_t prefix = 0;  // how much of the message's prefix is there
    std::uint32_t size = 0;  // of the message, as far as the prefix is there
    std::size_t left = 0;    // of the message, once its prefix is there
  };
  using Calls = std::vector<Call>;

  const char* begin_frame(Time now);
  const char* take_data(std::string_view data, Time now);
  /// So many bytes came, and are kept while a message is unfinished.
  const char* hold(std::size_t bytes);
  void end_frame();
  Calls::iterator find();
  const char* open(Time now);
  /// One more call begins; false: there are too many at once.
  bool begin_call(Time now);
  void close(Calls::iterator call);

  const ReadLimits limits_;
  std::size_t preface_ = 24;  // what is left of it
  std::array<unsigned char, kFrameHeader> header_{};
  std::size_t header_bytes_ = 0;
  std::size_t payload_ = 0;  // what is left of the frame
  std::uint8_t kind_ = 0, flags_ = 0;
  std::uint32_t stream_ = 0;
  std::size_t block_ = 0;  // of the header block under way
  std::size_t held_ = 0;
  std::size_t begun_ = 0;  // calls since burst_since_
  Time burst_since_{};
  Calls calls_;  // oldest first
};

}  // namespace rpc
