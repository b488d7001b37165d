// Goal: what a client makes gRPC keep is counted to the byte however its frames are torn, and whoever asks for too much
// is found before gRPC has kept it. Method: frames made by hand. Time is injected.
#include "controller/rpc/read_guard.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/controller/net/http2.h"

namespace {

using net::testing::frame;
using net::testing::kHello;
using rpc::Inspector;
using rpc::ReadLimits;
using namespace std::chrono_literals;

constexpr ReadLimits kLimits{
    .message = 1000, .unfinished = 4000, .calls = 3, .header_block = 500, .patience = std::chrono::seconds(10)};
constexpr int kDataFrame = 0, kHeadersFrame = 1, kResetFrame = 3, kPingFrame = 6, kContinuationFrame = 9;
constexpr int kEnd = 1, kEndOfHeaders = 4;

std::string prefix(std::uint32_t size, char compressed = 0) {
  std::string text(1, compressed);
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(size >> shift);
  return text;
}
std::string call(int stream, int flags = kEndOfHeaders) {
  return frame(kHeadersFrame, flags, static_cast<std::uint32_t>(stream), "headers");
}
std::string part(int stream, const std::string& bytes, int flags = 0) {
  return frame(kDataFrame, flags, static_cast<std::uint32_t>(stream), bytes);
}
std::string message(int stream, std::size_t size, int flags = 0) {
  return part(stream, prefix(static_cast<std::uint32_t>(size)) + std::string(size, 'm'), flags);
}

class Inspected : public ::testing::Test {
 protected:
  /// The fault in these bytes; empty: none.
  std::string take(const std::string& bytes) {
    const auto* fault = inspector_.take(bytes, now_);
    return fault == nullptr ? "" : fault;
  }
  Inspector::Time now_{1h};
  Inspector inspector_{kLimits};
};

TEST_F(Inspected, AConnectionThatSendsWholeMessagesHoldsNothing) {
  EXPECT_EQ(take(kHello), "");
  EXPECT_EQ(take(call(1) + message(1, 200, kEnd) + call(3) + message(3, 1000)), "");
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(take(message(3, 1000) + frame(kPingFrame, 0, 0, "pingpong")), "");
  EXPECT_EQ(inspector_.held(), 0U);
  now_ += 1h;
  EXPECT_FALSE(inspector_.is_overdue(now_)) << "a stream may be quiet for as long as it likes";
}

TEST_F(Inspected, AMessageIsTooLongAsSoonAsItSaysSo) {
  EXPECT_EQ(take(kHello + call(1) + part(1, prefix(1000))), "");
  EXPECT_EQ(take(call(3) + part(3, prefix(1001).substr(0, 4))), "");
  EXPECT_EQ(take(part(3, prefix(1001).substr(4))), "a message that is too long");
}

TEST_F(Inspected, FourGigabytesAreTooLong) {
  EXPECT_EQ(take(kHello + call(1) + part(1, prefix(0xFFFFFFFF))), "a message that is too long");
}

TEST_F(Inspected, ACompressedMessageIsRefused) {
  EXPECT_EQ(take(kHello + call(1) + part(1, prefix(10, 1))), "a compressed message");
}

TEST_F(Inspected, CallsWithoutAMessageAreCounted) {
  EXPECT_EQ(take(kHello + call(1) + call(3) + call(5)), "");
  EXPECT_EQ(take(message(1, 0)), "") << "an empty message is one";
  EXPECT_EQ(take(call(7)), "");
  EXPECT_EQ(take(call(9)), "too many calls without a message");
}

TEST_F(Inspected, CallsThatEndAreNotWaitedFor) {
  EXPECT_EQ(take(kHello), "");
  for (int stream = 1; stream < 200; stream += 6) {
    EXPECT_EQ(take(call(stream) + frame(kResetFrame, 0, static_cast<std::uint32_t>(stream), std::string(4, '\0'))), "");
    EXPECT_EQ(take(call(stream + 2) + part(stream + 2, "", kEnd)), "");
    EXPECT_EQ(take(call(stream + 4, kEndOfHeaders | kEnd)), "");
  }
  EXPECT_EQ(inspector_.held(), 0U);
}

TEST_F(Inspected, CallsThatBeginAtOnceAreBounded) {
  auto limits = kLimits;
  limits.burst = 3;
  Inspector inspector(limits);
  const auto begins = [&](int stream) {
    return inspector.take(call(stream) + message(stream, 5, kEnd), now_) == nullptr;
  };
  ASSERT_EQ(inspector.take(kHello, now_), nullptr);
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(begins(6 * i + 1) && begins(6 * i + 3) && begins(6 * i + 5)) << i;
    now_ += ReadLimits::kBurstEvery + 1ms;
  }
  EXPECT_TRUE(begins(1001) && begins(1003) && begins(1005));
  EXPECT_FALSE(begins(1007));
}

// While one message is unfinished, all that comes is counted: small pieces between other frames pin whole buffers.
TEST_F(Inspected, UnfinishedMessagesAreBoundedTogether) {
  EXPECT_EQ(take(kHello + call(1) + part(1, prefix(900))), "");
  std::string fault;
  std::size_t sent = 0;
  while (fault.empty() && sent < 10'000) {
    const auto more = frame(kPingFrame, 0, 0, "pingpong") + part(1, "m");
    sent += more.size();
    fault = take(more);
  }
  EXPECT_EQ(fault, "messages that are unfinished are too long");
  EXPECT_LE(sent, kLimits.unfinished);
  EXPECT_GE(inspector_.held(), sent) << "and what gRPC keeps of each piece";
}

TEST_F(Inspected, HeaderBlocksAreBounded) {
  const std::string half(250, 'h');
  EXPECT_EQ(take(kHello + frame(kHeadersFrame, 0, 1, half) + frame(kContinuationFrame, kEndOfHeaders, 1, half)), "");
  EXPECT_EQ(take(frame(kHeadersFrame, 0, 3, half) + frame(kContinuationFrame, 0, 3, half)), "");
  EXPECT_EQ(take(frame(kContinuationFrame, 0, 3, "h")), "headers that are too long");
}

TEST_F(Inspected, WhatIsMissingIsOverdueAfterItsTime) {
  EXPECT_EQ(take(kHello + call(1)), "");
  now_ += 10s;
  EXPECT_FALSE(inspector_.is_overdue(now_));
  EXPECT_EQ(take(call(3)), "");
  now_ += 1s;
  EXPECT_TRUE(inspector_.is_overdue(now_)) << "the first message has not come";
  EXPECT_EQ(take(message(1, 5)), "");
  EXPECT_FALSE(inspector_.is_overdue(now_)) << "the second call is younger";
  EXPECT_EQ(take(message(3, 5)), "");
  now_ += 1h;
  EXPECT_EQ(take(part(1, prefix(100))), "");
  now_ += 11s;
  EXPECT_EQ(take(part(1, "a byte")), "");
  EXPECT_TRUE(inspector_.is_overdue(now_)) << "a later message that does not end";
}

// Property: however the bytes are torn, the outcome is the same.
TEST(Inspector, SeesTheSameInWhateverPiecesTheBytesCome) {
  std::mt19937 random(7);  // NOLINT: the same each time
  const auto below = [&](std::size_t most) { return random() % most; };
  for (int round = 0; round < 300; ++round) {
    std::string bytes = kHello;
    for (int i = 0; i < 12; ++i) {
      const auto stream = static_cast<int>(2 * below(5) + 1);
      const int end = below(3) == 0 ? kEnd : 0;
      const auto kind = below(5);
      if (kind == 0) bytes += call(stream, kEndOfHeaders | end);
      if (kind == 1) bytes += message(stream, below(1100), end);
      if (kind == 2) bytes += part(stream, prefix(static_cast<std::uint32_t>(below(1100))).substr(0, below(6)), end);
      if (kind == 3) bytes += part(stream, std::string(below(300), '\0'), end);
      if (kind == 4) bytes += frame(kResetFrame, 0, static_cast<std::uint32_t>(stream), std::string(4, '\0'));
    }
    const Inspector::Time now{1h};
    Inspector whole(kLimits), torn(kLimits);
    const char* const expected = whole.take(bytes, now);
    const char* fault = nullptr;
    for (std::size_t at = 0; at < bytes.size() && fault == nullptr;) {
      const auto piece = 1 + below(20);
      fault = torn.take(std::string_view(bytes).substr(at, piece), now);
      at += piece;
    }
    ASSERT_EQ(std::string(expected == nullptr ? "" : expected), std::string(fault == nullptr ? "" : fault)) << round;
    if (fault == nullptr) {
      ASSERT_EQ(whole.held(), torn.held()) << round;
    }
  }
}

}  // namespace
