// Goal: header blocks are read as other programs write them, and nothing else is taken for a block.
// Method: the examples of RFC 7541, appendix C, byte for byte.
#include "controller/net/http2.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace net {
namespace {

std::string bytes(std::string_view hex) {
  std::string out;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    while (hex[i] == ' ') ++i;
    out += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return out;
}

using Headers = std::vector<std::pair<std::string, std::string>>;

std::optional<Headers> read(HpackReader& reader, std::string_view block, std::size_t most = 8192) {
  Headers headers;
  const bool is_read = reader.read(
      block, most, [&](std::string_view name, std::string_view value) { headers.emplace_back(name, value); });
  return is_read ? std::optional(headers) : std::nullopt;
}

TEST(Hpack, ReadsThreeRequestsThatShareATable) {
  HpackReader reader;
  EXPECT_EQ(read(reader, bytes("828684410f7777772e6578616d706c652e636f6d")),
            (Headers{{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":authority", "www.example.com"}}));
  EXPECT_EQ(read(reader, bytes("828684be58086e6f2d6361636865")), (Headers{{":method", "GET"},
                                                                          {":scheme", "http"},
                                                                          {":path", "/"},
                                                                          {":authority", "www.example.com"},
                                                                          {"cache-control", "no-cache"}}));
  EXPECT_EQ(read(reader, bytes("828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565")),
            (Headers{{":method", "GET"},
                     {":scheme", "https"},
                     {":path", "/index.html"},
                     {":authority", "www.example.com"},
                     {"custom-key", "custom-value"}}));
}

TEST(Hpack, ReadsTheSameInHuffmansCode) {
  HpackReader reader;
  EXPECT_EQ(read(reader, bytes("828684418cf1e3c2e5f23a6ba0ab90f4ff")),
            (Headers{{":method", "GET"}, {":scheme", "http"}, {":path", "/"}, {":authority", "www.example.com"}}));
  EXPECT_EQ(read(reader, bytes("828684be5886a8eb10649cbf"))->back(),
            std::pair(std::string("cache-control"), std::string("no-cache")));
  EXPECT_EQ(read(reader, bytes("828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf"))->back(),
            std::pair(std::string("custom-key"), std::string("custom-value")));
}

TEST(Hpack, LiteralsThatAreNotKeptAndNeverIndexedAreReadToo) {
  HpackReader reader;
  EXPECT_EQ(read(reader, bytes("040c2f73616d706c652f70617468")), (Headers{{":path", "/sample/path"}}));
  EXPECT_EQ(read(reader, bytes("100870617373776f726406736563726574")), (Headers{{"password", "secret"}}));
  EXPECT_FALSE(read(reader, bytes("be"))) << "neither was kept";
}

TEST(Hpack, TheTableIsBoundedAndForgetsTheOldest) {
  HpackReader reader;
  const std::string long_value(1000, 'v');
  std::string block;
  for (int i = 0; i < 10; ++i)
    block += std::string("\x40\x01", 2) + static_cast<char>('a' + i) + bytes("7fe906") + long_value;
  ASSERT_TRUE(read(reader, block, 20'000));
  EXPECT_EQ(read(reader, bytes("be"))->front().first, "j");
  EXPECT_EQ(read(reader, bytes("c0"))->front().first, "h");
  EXPECT_FALSE(read(reader, bytes("c1"))) << "three of these fit into 4,096 bytes";
  EXPECT_TRUE(read(reader, bytes("20"))) << "a table of size 0 is allowed";
  EXPECT_FALSE(read(reader, bytes("be"))) << "it is empty";
}

TEST(Hpack, MalformedBlocksAreRefused) {
  for (const auto* hex :
       {"80", "ff", "ffffffffffffffff7f", "40", "4001", "0005", "00ff", "3fe21f", "41f0", "4181ff", "4184ffffffff"}) {
    HpackReader reader;
    EXPECT_FALSE(read(reader, bytes(hex))) << hex;
  }
  HpackReader reader;
  EXPECT_FALSE(read(reader, bytes("8286"), 60)) << "too many headers";
}

TEST(Hpack, NoiseNeitherCrashesNorGrows) {
  std::mt19937 chance(41);
  for (int run = 0; run < 20'000; ++run) {
    HpackReader reader;
    std::string noise(chance() % 64, ' ');
    for (char& c : noise) c = static_cast<char>(chance());
    std::size_t size = 0;
    reader.read(noise, 8192,
                [&](std::string_view name, std::string_view value) { size += name.size() + value.size(); });
    ASSERT_LE(size, 8192U);
  }
}

}  // namespace
}  // namespace net
