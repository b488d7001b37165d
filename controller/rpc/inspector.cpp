#include "controller/rpc/inspector.h"

#include <algorithm>
#include <iterator>

namespace rpc {
namespace {

// Kinds of frames and their flags, RFC 9113, section 6.
constexpr std::uint8_t kData = 0, kHeaders = 1, kReset = 3, kContinuation = 9;
constexpr std::uint8_t kEndStream = 1, kPadded = 8;
/// Bytes that gRPC keeps of a frame of data besides the data.
constexpr std::size_t kSlice = 32;

std::uint32_t big_endian(const unsigned char* bytes, std::size_t count) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < count; ++i) value = value << 8 | bytes[i];
  return value;
}

}  // namespace

const char* Inspector::take(std::string_view bytes, Time now) {
  const auto greeting = std::min(preface_, bytes.size());
  preface_ -= greeting;
  bytes.remove_prefix(greeting);
  while (!bytes.empty()) {
    if (header_bytes_ < kFrameHeader) {
      const auto part = std::min(kFrameHeader - header_bytes_, bytes.size());
      std::copy_n(bytes.begin(), part, header_.begin() + static_cast<std::ptrdiff_t>(header_bytes_));
      header_bytes_ += part;
      bytes.remove_prefix(part);
      if (header_bytes_ < kFrameHeader) return nullptr;
      if (const auto* fault = begin_frame(now)) return fault;
    } else {
      const auto part = std::min(payload_, bytes.size());
      payload_ -= part;
      if (kind_ == kData) {
        if (const auto* fault = take_data(bytes.substr(0, part), now)) return fault;
      } else if (const auto* fault = hold(part)) {
        return fault;
      }
      bytes.remove_prefix(part);
    }
    if (payload_ == 0) end_frame();
  }
  return nullptr;
}

const char* Inspector::begin_frame(Time now) {
  payload_ = big_endian(header_.data(), 3);
  kind_ = header_[3];
  flags_ = header_[4];
  stream_ = big_endian(header_.data() + 5, 4) & 0x7FFFFFFF;
  if (const auto* fault = hold(kind_ == kData ? kFrameHeader + kSlice : kFrameHeader)) return fault;
  switch (kind_) {
    case kData:
      // gRPC refuses padding, too.
      return (flags_ & kPadded) != 0 ? "padded data" : nullptr;
    case kHeaders:
      block_ = payload_;
      if (block_ > limits_.header_block) return "headers that are too long";
      if (!begin_call(now)) return "too many calls at once";
      return (flags_ & kEndStream) != 0 || find() != calls_.end() ? nullptr : open(now);
    case kContinuation:
      block_ += payload_;
      return block_ > limits_.header_block ? "headers that are too long" : nullptr;
    default:
      return nullptr;
  }
}

const char* Inspector::take_data(std::string_view data, Time now) {
  while (!data.empty()) {
    auto call = find();
    if (call == calls_.end()) {
      if (const auto* fault = open(now)) return fault;
      call = std::prev(calls_.end());
    }
    while (call->prefix < kPrefix && !data.empty()) {
      // A compressed message may grow a thousandfold, and no client of muster compresses.
      if (call->prefix == 0 && data.front() != 0) return "a compressed message";
      if (call->prefix++ > 0) call->size = call->size << 8 | static_cast<unsigned char>(data.front());
      data.remove_prefix(1);
      if (const auto* fault = hold(1)) return fault;
      if (call->prefix < kPrefix) continue;
      if (call->size > limits_.message) return "a message that is too long";
      call->left = call->size;
    }
    if (call->prefix < kPrefix) return nullptr;
    const auto part = std::min(call->left, data.size());
    call->left -= part;
    if (const auto* fault = hold(part)) return fault;
    data.remove_prefix(part);
    if (call->left == 0) close(call);
  }
  return nullptr;
}

const char* Inspector::hold(std::size_t bytes) {
  if (!calls_.empty()) held_ += bytes;
  return held_ > limits_.unfinished ? "messages that are unfinished are too long" : nullptr;
}

void Inspector::end_frame() {
  header_bytes_ = 0;
  const bool may_end = kind_ == kData || kind_ == kHeaders;
  const bool is_over = kind_ == kReset || (may_end && (flags_ & kEndStream) != 0);
  if (!is_over) return;
  if (const auto call = find(); call != calls_.end()) close(call);
}

Inspector::Calls::iterator Inspector::find() {
  return std::ranges::find(calls_, stream_, &Call::stream);
}

const char* Inspector::open(Time now) {
  if (calls_.size() >= limits_.calls) return "too many calls without a message";
  calls_.push_back({stream_, now});
  return nullptr;
}

bool Inspector::begin_call(Time now) {
  if (now - burst_since_ > ReadLimits::kBurstEvery) {
    burst_since_ = now;
    begun_ = 0;
  }
  return ++begun_ <= limits_.burst || limits_.burst == 0;
}

void Inspector::close(Calls::iterator call) {
  calls_.erase(call);
  if (calls_.empty()) held_ = 0;
}

bool Inspector::is_overdue(Time now) const {
  return !calls_.empty() && now - calls_.front().since > limits_.patience;
}

}  // namespace rpc
