// Goal: the first call of a connection is understood however its bytes are torn, and nobody gets beyond the budget.
// Method: frames made by hand, as gRPC's clients and as attackers send them.
#include "controller/net/newcomer.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/controller/net/http2.h"

namespace net {
namespace {

using testing::data;
using testing::frame;
using testing::headers;
using testing::kHello;
using State = Newcomer::State;
constexpr const char* kRanks = "/muster.v1.RankService/";

State state_of(const std::string& bytes, Newcomer& newcomer, std::size_t piece = 4096) {
  for (std::size_t at = 0; at < bytes.size(); at += piece) newcomer.take(std::string_view(bytes).substr(at, piece));
  return newcomer.state();
}
State state_of(const std::string& bytes) {
  Newcomer newcomer(kRanks);
  return state_of(bytes, newcomer);
}

TEST(Newcomer, APersonsCallIsKnownByItsHeaders) {
  Newcomer newcomer(kRanks);
  EXPECT_EQ(newcomer.state(), State::kSilent);
  EXPECT_EQ(newcomer.take(kHello), State::kWaits);
  EXPECT_EQ(newcomer.take(headers(1, "/muster.v1.JobService/List", "secret")), State::kCalls);
  EXPECT_EQ(newcomer.call().path, "/muster.v1.JobService/List");
  EXPECT_EQ(newcomer.call().token, "secret");
  EXPECT_EQ(newcomer.call().stream, 1U);
  EXPECT_EQ(newcomer.call().message, "");
  EXPECT_EQ(newcomer.said(), kHello + headers(1, "/muster.v1.JobService/List", "secret"))
      << "gRPC gets everything as it came";
}

TEST(Newcomer, ARanksCallIsKnownByTheBeginningOfItsMessage) {
  Newcomer newcomer(kRanks);
  const std::string message(200, 'm');
  EXPECT_EQ(newcomer.take(kHello + headers(1, std::string(kRanks) + "Beat", "secret")), State::kWaits);
  EXPECT_EQ(newcomer.take(data(1, message).substr(0, 9 + 5 + Newcomer::kMessageBytes - 1)), State::kWaits);
  EXPECT_EQ(newcomer.take("m"), State::kCalls) << "the rest of a large message isn't waited for";
  EXPECT_EQ(newcomer.call().message, message.substr(0, Newcomer::kMessageBytes));
  EXPECT_EQ(newcomer.call().token, "secret");
}

TEST(Newcomer, AMessageMayComeInSeveralFramesOrBeShort) {
  const auto begin = kHello + headers(1, std::string(kRanks) + "Beat", "t");
  const auto prefixed = std::string("\0\0\0\0\3", 5) + "abc";
  Newcomer two(kRanks);
  EXPECT_EQ(state_of(begin + frame(0, 0, 1, prefixed.substr(0, 2)), two), State::kWaits);
  EXPECT_EQ(two.take(frame(0, 0, 1, prefixed.substr(2))), State::kCalls);
  EXPECT_EQ(two.call().message, "abc");
  Newcomer padded(kRanks);
  EXPECT_EQ(state_of(begin + frame(0, 8, 1, std::string(1, '\2') + prefixed + std::string(2, '\0')), padded),
            State::kCalls);
  EXPECT_EQ(padded.call().message, "abc");
  Newcomer empty(kRanks);
  EXPECT_EQ(state_of(begin + data(1, ""), empty), State::kCalls);
  EXPECT_EQ(empty.call().message, "");
  EXPECT_EQ(state_of(begin + frame(0, 1, 1, "")), State::kCalls) << "a call without a message is judged, too";
}

TEST(Newcomer, AHeaderBlockMayGoOnInFurtherFramesAndHavePaddingAndPriority) {
  const auto block = headers(1, "/muster.v1.JobService/List", "secret").substr(9);
  Newcomer newcomer;
  EXPECT_EQ(state_of(kHello + frame(1, 0, 1, block.substr(0, 10)) + frame(9, 0, 1, block.substr(10, 5)) +
                         frame(9, 4, 1, block.substr(15)),
                     newcomer),
            State::kCalls);
  EXPECT_EQ(newcomer.call().token, "secret");
  Newcomer right;
  EXPECT_EQ(
      state_of(kHello + frame(1, 4 | 8 | 32, 1, std::string(1, '\3') + "PPPPP" + block + std::string(3, '\0')), right),
      State::kCalls);
}

// Every way to tear a call in two, and single bytes.
TEST(Newcomer, ItDoesNotMatterHowTheBytesAreTorn) {
  const auto call =
      kHello + frame(8, 0, 0, "wwww") + headers(1, std::string(kRanks) + "Beat", "t") + data(1, "\x0A\x02\x08\x07");
  for (std::size_t at = 0; at <= call.size(); ++at) {
    Newcomer newcomer(kRanks);
    newcomer.take(std::string_view(call).substr(0, at));
    newcomer.take(std::string_view(call).substr(at));
    ASSERT_EQ(newcomer.state(), State::kCalls) << at;
    ASSERT_EQ(newcomer.call().message, "\x0A\x02\x08\x07") << at;
  }
  Newcomer slow(kRanks);
  EXPECT_EQ(state_of(call, slow, 1), State::kCalls);
  EXPECT_EQ(slow.said(), call);
}

TEST(Newcomer, WhatIsNoClientOfGrpcIsRefusedAtItsFirstWrongByte) {
  EXPECT_EQ(state_of("G"), State::kMisbehaves);
  EXPECT_EQ(state_of("PRI * HTTP/2.1"), State::kMisbehaves);
  EXPECT_EQ(state_of(std::string("\x16\x03\x01\x02\x00", 5)), State::kMisbehaves) << "TLS";
  const std::string attacks[] = {
      frame(3, 0, 1, "\0\0\0\0"),                                                            // a reset
      headers(1, std::string(kRanks) + "Beat", "t") + frame(3, 0, 1, std::string(4, '\0')),  // rapid reset
      frame(0, 0, 1, "data"),                                                                // data without a call
      frame(9, 0, 1, "x"),                              // a continuation without a beginning
      frame(1, 0, 1, "") + frame(6, 0, 0, "pingpong"),  // a frame within a block
      frame(1, 4, 2, ""),                               // a stream of the server's
      frame(4, 0, 0, "12345"),                          // settings of a wrong size
      frame(4, 0, 0, std::string(6 * 40, 's')),         // far too many settings
      frame(6, 0, 0, "ping"),
      frame(8, 0, 0, ""),
      frame(2, 0, 1, ""),
      frame(5, 0, 1, ""),
      frame(7, 0, 0, ""),
      frame(1, 4, 1, "\x80"),  // no header block
      frame(0, 0, 1, std::string(17'000, 'x')),
      std::string("\xFF\xFF\xFF\x01\x04\0\0\0\1", 9),  // a frame of 16 MB
  };
  for (const auto& attack : attacks) EXPECT_EQ(state_of(kHello + attack), State::kMisbehaves) << &attack - attacks;
}

TEST(Newcomer, EachBudgetEndsWhatHasNoEnd) {
  const auto beat = [](std::uint32_t stream) { return headers(stream, std::string(kRanks) + "Beat", "t"); };
  // Streams that are opened, and never said what.
  std::string streams = kHello;
  for (std::uint32_t i = 0; i < Newcomer::kMostCalls; ++i) streams += beat(2 * i + 1);
  EXPECT_EQ(state_of(streams), State::kWaits);
  EXPECT_EQ(state_of(streams + beat(99)), State::kMisbehaves);
  // A header block that goes on for ever.
  Newcomer endless;
  auto continued = kHello + frame(1, 0, 1, "");
  for (int i = 0; i < 20; ++i) continued += frame(9, 0, 1, std::string(1000, '\x82'));
  EXPECT_EQ(state_of(continued, endless), State::kMisbehaves);
  EXPECT_LE(endless.said().size(), Newcomer::kMostBytes);
  // One whose headers are longer than the block: a reference for each byte.
  EXPECT_EQ(state_of(kHello + frame(1, 4, 1, std::string(500, '\x82'))), State::kMisbehaves);
  // Frames.
  std::string chatter = kHello;
  for (int i = 0; i < Newcomer::kMostFrames; ++i) chatter += frame(8, 0, 0, "wwww");
  EXPECT_EQ(state_of(chatter), State::kMisbehaves);
  // Bytes.
  std::string bytes = kHello;
  for (int i = 0; i < 3; ++i) bytes += frame(99, 0, 0, std::string(10'000, 'x'));
  Newcomer many;
  EXPECT_EQ(state_of(bytes, many), State::kMisbehaves);
  EXPECT_NE(many.fault(), "");
}

TEST(Newcomer, NoiseInACallNeitherCrashesNorGrows) {
  std::mt19937 chance(7);
  const auto call = kHello + headers(1, std::string(kRanks) + "Beat", "token") + data(1, std::string(80, 'm'));
  for (int run = 0; run < 20'000; ++run) {
    auto bytes = call;
    for (auto changes = chance() % 4; changes > 0; --changes)
      bytes[chance() % bytes.size()] = static_cast<char>(chance());
    bytes =
        bytes.substr(0, chance() % (bytes.size() + 1)) + (chance() % 2 ? bytes.substr(chance() % bytes.size()) : "");
    Newcomer newcomer(kRanks);
    const auto state = state_of(bytes, newcomer, 1 + chance() % 40);
    ASSERT_LE(newcomer.said().size(), Newcomer::kMostBytes);
    ASSERT_LE(newcomer.call().message.size(), Newcomer::kMessageBytes);
    ASSERT_EQ(state == State::kMisbehaves, !newcomer.fault().empty());
  }
}

}  // namespace
}  // namespace net
