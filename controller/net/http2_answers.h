#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace net {

// Words of the gate and of musterd's own probe, as HTTP/2 frames.

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
