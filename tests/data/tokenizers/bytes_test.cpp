#include <gtest/gtest.h>

#include "base/checksum.h"
#include "data/tokenizers/tokenizer.h"

namespace data::tokenizers {
namespace {

using Ids = Tokenizer::Ids;

std::string all_bytes() {
  std::string text;
  for (int byte = 0; byte < 256; ++byte) text += static_cast<char>(byte);
  return text;
}

TEST(Bytes, AnIdIsItsByteAndTheLastIsTheEndOfAText) {
  const auto bytes = open_tokenizer("bytes");
  const auto ids = bytes->encode(all_bytes(), true);
  ASSERT_EQ(ids.size(), 256U);
  for (std::uint32_t byte = 0; byte < 256; ++byte) EXPECT_EQ(ids[byte], byte);
  EXPECT_EQ(bytes->vocabulary(), 257);
  EXPECT_EQ(bytes->special(), Special{.eos = 256});
  EXPECT_EQ(bytes->prefix(), Ids{});
  EXPECT_EQ(bytes->suffix(), Ids{});
  EXPECT_EQ(bytes->kind(), "bytes");
  EXPECT_EQ(bytes->sha256(), base::sha256("muster bytes 1"));
}

TEST(Bytes, DecodingGivesValidTextWithoutTheEndIfAsked) {
  const auto bytes = open_tokenizer("bytes");
  const Ids ids{'z', 0xC3, 0xA9, 256, 0xC3, 999};
  EXPECT_EQ(bytes->decode(ids, true), "z\xC3\xA9\xEF\xBF\xBD");
  EXPECT_EQ(bytes->decode(ids, false), "z\xC3\xA9<|end|>\xEF\xBF\xBD");
  EXPECT_EQ(bytes->decode({}, false), "");
}

TEST(Bytes, PiecesAreWrittenAsByteLevelTokenizersWriteThem) {
  const auto bytes = open_tokenizer("bytes");
  EXPECT_EQ(bytes->piece('a'), "a");
  EXPECT_EQ(bytes->piece(' '), "\xC4\xA0");   // U+0120
  EXPECT_EQ(bytes->piece(0), "\xC4\x80");     // U+0100
  EXPECT_EQ(bytes->piece(0xAD), "\xC5\x83");  // U+0143, the last one
  EXPECT_EQ(bytes->piece(0xFF), "\xC3\xBF");
  EXPECT_EQ(bytes->piece(256), "<|end|>");
  EXPECT_THROW(bytes->piece(257), std::runtime_error);
}

TEST(Bytes, ABatchIsEncodedTextByText) {
  const auto bytes = open_tokenizer("bytes");
  const std::vector<std::string> texts{"ab", "", "c"};
  EXPECT_EQ(bytes->encode_batch(texts, false), (std::vector<Ids>{{'a', 'b'}, {}, {'c'}}));
}

}  // namespace
}  // namespace data::tokenizers
