#include "data/prepare/text/unpack.h"

#include <gmock/gmock.h>

#include <random>

namespace data::prepare {
namespace {

using namespace std::string_literals;
using ::testing::HasSubstr;

constexpr std::size_t kMost = 1 << 20;
const std::string kHead = "\x04\x22\x4d\x18\x40\x40\xc0"s;  // version 1, blocks that lean on earlier ones

std::string little_endian(std::uint32_t value) {
  return {static_cast<char>(value), static_cast<char>(value >> 8), static_cast<char>(value >> 16),
          static_cast<char>(value >> 24)};
}

/// A frame of these packed blocks.
std::string frame(const std::vector<std::string>& blocks) {
  std::string out = kHead;
  for (const auto& block : blocks) out += little_endian(static_cast<std::uint32_t>(block.size())) + block;
  return out + little_endian(0);
}

std::string refusal(std::string_view bytes, std::size_t most = kMost) {
  try {
    unlz4(bytes, most);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "unpacked";
}

TEST(Lz4, CopiesLiteralsAndMatches) {
  // "abc", then 9 bytes from 3 back, which overlap what they write; then the literals "xy".
  EXPECT_EQ(unlz4(frame({"\x35"s + "abc" + "\x03\0"s + "\x20"s + "xy"}), kMost), "abcabcabcabcxy");
}

TEST(Lz4, ReadsLongLengths) {
  // 15 + 255 + 1 literals, then a match of 15 + 5 + 4 bytes from 1 back.
  const std::string literals(271, 'q');
  EXPECT_EQ(unlz4(frame({"\xff\xff\x01"s + literals + "\x01\0\x05"s + "\0"s}), kMost), std::string(271 + 24, 'q'));
}

TEST(Lz4, MatchesReachIntoEarlierBlocksAndStoredOnes) {
  const auto stored = little_endian(0x8000'0003U) + "abc";
  const auto packed = "\x00\x03\0\x00"s;
  EXPECT_EQ(unlz4(kHead + stored + little_endian(4) + packed + little_endian(0), kMost), "abcabca");
}

TEST(Lz4, DamageIsDescribed) {
  EXPECT_THAT(refusal("no frame at all"), HasSubstr("not an LZ4 frame"));
  const auto before_its_start = frame({"\x35"s + "abc" + "\x04\0"s + "\x20"s + "xy"});
  EXPECT_THAT(refusal(before_its_start), HasSubstr("is damaged"));
  EXPECT_THAT(refusal(frame({"\x35"s + "abc" + "\x03\0"s}), 8), HasSubstr("more than 8 bytes"));
  EXPECT_THAT(refusal("\x04\x22\x4d\x18\x41\x40\0\0\0\0\xc0"s), HasSubstr("dictionary"));
  const auto whole = frame({"\x35"s + "abc" + "\x03\0"s + "\x20"s + "xy"});
  for (std::size_t cut = 4; cut < whole.size(); ++cut) EXPECT_NE(refusal(whole.substr(0, cut)), "unpacked") << cut;
}

TEST(Lz4, HostileBlocksEnd) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::string block;
    for (auto left = random() % 64; left > 0; --left) block += static_cast<char>(random());
    try {
      EXPECT_LE(unlz4(frame({block}), 4096).size(), 4096U);
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), HasSubstr("LZ4 frame"));
    }
  }
}

}  // namespace
}  // namespace data::prepare
