#include "base/checksum.h"

#include <gtest/gtest.h>

#include <string>

namespace base {
namespace {

TEST(Crc32c, IsThatOfTheStandard) {
  // RFC 3720, B.4, and the check value of every catalogue.
  std::string rising;
  for (char c = 0; c < 32; ++c) rising.push_back(c);
  for (const auto& crc : {crc32c, crc32c_portable}) {
    EXPECT_EQ(crc("123456789", 0), 0xe3069283u);
    EXPECT_EQ(crc(std::string(32, '\0'), 0), 0x8a9136aau);
    EXPECT_EQ(crc(std::string(32, '\xff'), 0), 0x62a8ab43u);
    EXPECT_EQ(crc(rising, 0), 0x46dd794eu);
  }
  EXPECT_EQ(crc32c(""), 0u);
}

TEST(Crc32c, GoesOnOverPieces) {
  std::string text;
  for (int i = 0; i < 100; ++i) text.push_back(static_cast<char>(i * 37 + 11));
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    const auto whole = crc32c(text.substr(cut), crc32c(text.substr(0, cut)));
    EXPECT_EQ(whole, crc32c(text)) << cut;
    EXPECT_EQ(whole, crc32c_portable(text.substr(cut), crc32c_portable(text.substr(0, cut)))) << cut;
  }
}

}  // namespace
}  // namespace base
