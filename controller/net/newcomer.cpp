#include "controller/net/newcomer.h"

#include <strings.h>

#include <algorithm>

namespace net {
namespace {

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr std::size_t kFrameHeader = 9;
/// Nobody has been allowed larger frames.
constexpr std::size_t kMostPayload = 16 * 1024;
constexpr std::size_t kMostSettings = 32;
constexpr std::size_t kGrpcPrefix = 5;

// Kinds of frames, RFC 9113, section 6.
constexpr std::uint8_t kData = 0, kHeaders = 1, kPriority = 2, kReset = 3, kSettings = 4, kPush = 5, kPing = 6,
                       kGoAway = 7, kWindowUpdate = 8, kContinuation = 9;
constexpr std::uint8_t kEndStream = 1, kAck = 1, kEndHeaders = 4, kPadded = 8, kHasPriority = 32;

std::uint32_t big_endian(std::string_view bytes) {
  std::uint32_t value = 0;
  for (const char c : bytes) value = value << 8 | static_cast<std::uint8_t>(c);
  return value;
}

/// "Bearer abc" -> "abc"; anything else: "".
std::string bearer(std::string_view value) {
  constexpr std::string_view kScheme = "Bearer ";
  if (value.size() <= kScheme.size() || ::strncasecmp(value.data(), kScheme.data(), kScheme.size()) != 0) return "";
  return std::string(value.substr(kScheme.size()));
}

/// How many bytes of a message are wanted, its prefix included, as far as it has been read.
std::size_t wanted(std::string_view message) {
  if (message.size() < kGrpcPrefix) return kGrpcPrefix;
  return kGrpcPrefix + std::min<std::size_t>(big_endian(message.substr(1, 4)), Newcomer::kMessageBytes);
}

}  // namespace

Newcomer::State Newcomer::take(std::string_view bytes) {
  if (is_done() || bytes.empty()) return state_;
  if (bytes.size() > room()) {
    misbehaves("it sent " + std::to_string(kMostBytes) + " bytes without a call");
    return state_;
  }
  state_ = State::kWaits;
  said_ += bytes;
  parse();
  if (!is_done() && room() == 0) misbehaves("it sent " + std::to_string(kMostBytes) + " bytes without a call");
  return state_;
}

void Newcomer::parse() {
  if (at_ == 0) {
    const auto both = std::min(said_.size(), kPreface.size());
    if (std::string_view(said_).substr(0, both) != kPreface.substr(0, both)) return misbehaves("it speaks no HTTP/2");
    if (both < kPreface.size()) return;
    at_ = kPreface.size();
  }
  Frame frame;
  while (!is_done() && next(frame)) {
    if (frame.size > kMostPayload) return misbehaves("a frame of " + std::to_string(frame.size) + " bytes");
    // Only the beginning of a message is wanted.
    if (!frame.is_whole() && frame.kind != kData) return;
    judge(frame);
    if (!frame.is_whole()) return;
    at_ += kFrameHeader + frame.size;
  }
}

bool Newcomer::next(Frame& frame) const {
  const auto left = std::string_view(said_).substr(at_);
  if (left.size() < kFrameHeader) return false;
  frame.size = big_endian(left.substr(0, 3));
  frame.kind = static_cast<std::uint8_t>(left[3]);
  frame.flags = static_cast<std::uint8_t>(left[4]);
  frame.stream = big_endian(left.substr(5, 4)) & 0x7FFFFFFF;
  frame.payload = left.substr(kFrameHeader, frame.size);
  return true;
}

void Newcomer::judge(const Frame& frame) {
  if (headers_of_ != 0 && (frame.kind != kContinuation || frame.stream != headers_of_)) {
    return misbehaves("a frame between the parts of a header block");
  }
  if (frame.is_whole() && ++frames_ > kMostFrames) {
    return misbehaves("it sent " + std::to_string(kMostFrames) + " frames without a call");
  }
  switch (frame.kind) {
    case kHeaders:
      return take_headers(frame);
    case kContinuation:
      if (headers_of_ == 0) return misbehaves("a header block without a beginning");
      return take_fragment(frame, frame.payload);
    case kData:
      return take_data(frame);
    case kSettings:
      if (frame.stream != 0 || frame.size % 6 != 0 || frame.size > 6 * kMostSettings ||
          ((frame.flags & kAck) != 0 && frame.size != 0)) {
        return misbehaves("malformed settings");
      }
      return;
    case kPing:
      if (frame.stream != 0 || frame.size != 8) return misbehaves("a malformed ping");
      return;
    case kWindowUpdate:
      if (frame.size != 4) return misbehaves("a malformed window update");
      return;
    case kPriority:
      if (frame.size != 5) return misbehaves("a malformed priority");
      return;
    case kReset:
      return misbehaves("it resets a stream before its first call was answered");
    case kGoAway:
      return misbehaves("it leaves without a call");
    case kPush:
      return misbehaves("it pushes");
    default:
      return;  // a frame of an extension
  }
}

void Newcomer::take_headers(const Frame& frame) {
  if (frame.stream % 2 == 0 || frame.stream <= last_stream_) return misbehaves("a stream that it may not open");
  if (open_.size() >= kMostCalls) {
    return misbehaves("it opens more than " + std::to_string(kMostCalls) + " streams without a call");
  }
  last_stream_ = headers_of_ = frame.stream;
  headers_end_stream_ = (frame.flags & kEndStream) != 0;
  auto fragment = frame.payload;
  std::size_t padding = 0;
  if ((frame.flags & kPadded) != 0) {
    if (fragment.empty()) return misbehaves("malformed headers");
    padding = static_cast<std::uint8_t>(fragment.front());
    fragment.remove_prefix(1);
  }
  const std::size_t priority = (frame.flags & kHasPriority) != 0 ? 5 : 0;
  if (fragment.size() < priority + padding) return misbehaves("malformed headers");
  fragment.remove_prefix(priority);
  fragment.remove_suffix(padding);
  take_fragment(frame, fragment);
}

void Newcomer::take_fragment(const Frame& frame, std::string_view fragment) {
  if (block_.size() + fragment.size() > kMostHeaderBytes) return misbehaves("its headers are too long");
  block_ += fragment;
  if ((frame.flags & kEndHeaders) != 0) end_headers(frame.stream);
}

void Newcomer::end_headers(std::uint32_t stream) {
  headers_of_ = 0;
  FirstCall call;
  call.stream = stream;
  const auto block = std::exchange(block_, {});
  const bool is_read = hpack_.read(block, kMostHeaderBytes, [&](std::string_view name, std::string_view value) {
    if (name == ":path") call.path = value;
    if (name == "authorization") call.token = bearer(value);
    if (name == "muster-user") call.user = value;
  });
  if (!is_read) return misbehaves("malformed headers, or too many");
  const bool wants_message = !message_of_.empty() && call.path.starts_with(message_of_);
  if (!wants_message || headers_end_stream_) return calls(std::move(call));
  open_.push_back({std::move(call), {}});
}

// A frame that is not whole comes again when more of it is there. So what it has is kept only when it is whole.
void Newcomer::take_data(const Frame& frame) {
  const auto open = std::ranges::find(open_, frame.stream, [](const Open& one) { return one.call.stream; });
  if (open == open_.end()) return misbehaves("data without a call");
  auto data = frame.payload;
  if ((frame.flags & kPadded) != 0) {
    if (data.empty()) return frame.is_whole() ? misbehaves("malformed data") : void();
    const std::size_t padding = static_cast<std::uint8_t>(data.front());
    if (padding >= frame.size) return misbehaves("malformed data");
    data = data.substr(1, std::min(data.size(), frame.size - padding) - 1);
  }
  auto message = open->message + std::string(data.substr(0, kGrpcPrefix + kMessageBytes));
  const bool is_over = frame.is_whole() && (frame.flags & kEndStream) != 0;
  if (message.size() >= wanted(message) || is_over) {
    open->call.message = message.substr(std::min(message.size(), kGrpcPrefix)).substr(0, kMessageBytes);
    return calls(std::move(open->call));
  }
  if (frame.is_whole()) open->message = std::move(message);
}

}  // namespace net
