#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace net {

/// Reads the header blocks of one HTTP/2 connection (HPACK, RFC 7541). Blocks must come in the order of the connection,
/// since a block may refer to headers of earlier ones. Not thread-safe.
///
/// Memory: the dynamic table holds at most kTableBytes, as both sides of a connection begin with. The caller bounds the
/// size of a block. A decoded text has at most 8/5 of the block's bytes.
class HpackReader {
 public:
  static constexpr std::size_t kTableBytes = 4096;
  /// The cost of one entry of the table besides its text.
  static constexpr std::size_t kEntryBytes = 32;

  using Take = std::function<void(std::string_view name, std::string_view value)>;

  /// Calls `take` for each header of a whole block. False: the block is malformed, or its headers are longer than
  /// `most_bytes` together. A block that was refused leaves the table in an undefined state.
  bool read(std::string_view block, std::size_t most_bytes, const Take& take);

 private:
  using Header = std::pair<std::string, std::string>;

  bool find(std::uint64_t index, Header& header) const;
  void keep(const Header& header);
  void shrink_to(std::size_t bytes);

  std::deque<Header> table_;  // newest first
  std::size_t bytes_ = 0, most_ = kTableBytes;
};

/// A text in the Huffman code of HPACK; nullopt: it is malformed.
std::optional<std::string> read_huffman(std::string_view coded);

// Words of the gate and of musterd's own probe, as frames.

/// The greeting of a server: SETTINGS. `most_streams`: how many calls a client may have open at once.
std::string http2_greeting(std::uint32_t most_streams);

/// The answer to the call on `stream`, and GOAWAY: the call was refused with gRPC's `status` and this text, and later
/// ones were not begun. The text is cut at 1,000 bytes.
std::string http2_refusal(std::uint32_t stream, int status, std::string_view text);

/// GOAWAY: no call was begun, so the client may make all of them anew on another connection.
std::string http2_goodbye(std::string_view why);

/// The first words of a client: its greeting, and a call of `path` without a message.
std::string http2_call(std::string_view path, std::string_view token);

/// The content of the bytes that a server has said so far.
enum class Http2Answer { kMore, kHeaders, kNone };
/// kHeaders: the answer to a call has begun. kNone: no call will be answered, or this is not HTTP/2.
Http2Answer http2_answer_in(std::string_view said);

}  // namespace net
