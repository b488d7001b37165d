#include "base/checksum.h"

#include <gtest/gtest.h>

namespace base {
namespace {

TEST(Sha256, IsThatOfTheStandard) {
  // FIPS 180-2, appendix B.
  EXPECT_EQ(hex(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex(sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, GoesOnOverPiecesAndAfterADigest) {
  const std::string text(200, 'x');
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    Sha256 pieces;
    pieces.add(text.substr(0, cut));
    EXPECT_EQ(pieces.digest(), sha256(text.substr(0, cut))) << cut;
    pieces.add(text.substr(cut));
    EXPECT_EQ(pieces.digest(), sha256(text)) << cut;
  }
}

}  // namespace
}  // namespace base
