// Goal: what is printed token by token is the text of all tokens, and never a broken character. Method: the byte
// vocabulary, whose tokens are parts of characters, and a tokenizer whose first token loses its space.
#include "worker/infer/texts.h"

#include <gmock/gmock.h>

#include <map>
#include <random>
#include <sstream>

#include "data/tokenizers/tokenizer.h"

namespace infer {
namespace {

using ::testing::ElementsAre;
using Ids = std::vector<std::uint32_t>;

Ids bytes_of(std::string_view text) {
  Ids ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

std::vector<std::string> pieces(const data::tokenizers::Tokenizer& tokenizer, const Ids& before, const Ids& ids) {
  TextStream stream(tokenizer, before);
  std::vector<std::string> out;
  for (const auto id : ids) out.push_back(stream.add(id));
  out.push_back(stream.finish());
  return out;
}

std::string together(const std::vector<std::string>& all) {
  std::string text;
  for (const auto& piece : all) text += piece;
  return text;
}

TEST(TextStream, ACharacterWaitsForItsLastByte) {
  const auto tokenizer = data::tokenizers::byte_tokenizer();
  EXPECT_THAT(pieces(*tokenizer, {}, bytes_of("a\xC3\xA9z")), ElementsAre("a", "", "\xC3\xA9", "z", ""));
  EXPECT_THAT(pieces(*tokenizer, {}, bytes_of("\xF0\x9F\x99\x82")), ElementsAre("", "", "", "\xF0\x9F\x99\x82", ""));
}

TEST(TextStream, WhatNeverBecomesACharacterIsGivenOutAtTheEnd) {
  const auto tokenizer = data::tokenizers::byte_tokenizer();
  EXPECT_THAT(pieces(*tokenizer, {}, bytes_of("a\xE2\x82")), ElementsAre("a", "", "", "\uFFFD"));
  EXPECT_THAT(pieces(*tokenizer, {}, bytes_of("\xE2\x41")), ElementsAre("", "\uFFFD\x41", ""));
}

// A character behind bytes that are none comes whole, though those bytes wait no longer than four tokens.
TEST(TextStream, WrongBytesDoNotHoldUpTheTextForEver) {
  const auto tokenizer = data::tokenizers::byte_tokenizer();
  const auto got = pieces(*tokenizer, {},
                          bytes_of("\xFF\xFF\xFF\xE2\x82\xAC"
                                   "b"));
  EXPECT_EQ(together(got),
            "\uFFFD\uFFFD\uFFFD\u20AC"
            "b");
  EXPECT_EQ(got[3], "\uFFFD");
}

TEST(TextStream, IsTheTextOfAllTokens) {
  const auto tokenizer = data::tokenizers::byte_tokenizer();
  std::mt19937 random(1);
  const std::vector<std::string> parts{"a", "\u00e9", "\u20ac", "\U0001F642", "\xFF", "\xE2\x82", " ", "\n"};
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (int i = 0; i < 12; ++i) text += parts[random() % parts.size()];
    const auto got = pieces(*tokenizer, bytes_of("before"), bytes_of(text));
    EXPECT_EQ(together(got), data::tokenizers::repaired(text)) << round;
    for (const auto& piece : got) EXPECT_EQ(piece, data::tokenizers::repaired(piece));
  }
}

/// Words with a space before them, which the first word of a text loses, as sentencepiece's decoders do it.
class Words : public data::tokenizers::Tokenizer {
 public:
  Words() : Tokenizer(Facts()) {}
  Ids encode(std::string_view, bool) const override { return {}; }
  std::vector<Ids> encode_batch(std::span<const std::string>, bool) const override { return {}; }
  std::string decode(std::span<const std::uint32_t> ids, bool) const override {
    std::string text;
    for (const auto id : ids) text += id == 0 ? "" : " w" + std::to_string(id);
    return text.substr(std::min<std::size_t>(text.size(), 1));
  }
  std::int64_t vocabulary() const override { return 10; }
  std::string piece(std::uint32_t id) const override { return std::to_string(id); }
};

TEST(TextStream, AWordKeepsItsSpaceBehindOthers) {
  const Words words;
  EXPECT_THAT(pieces(words, {}, {1, 2, 0, 3}), ElementsAre("w1", " w2", "", " w3", ""));
  EXPECT_THAT(pieces(words, {5}, {1, 2}), ElementsAre(" w1", " w2", ""));
  Ids many;
  std::string want;
  for (std::uint32_t i = 0; i < 30; ++i) {
    many.push_back(1 + i % 9);
    want += (i == 0 ? "w" : " w") + std::to_string(many.back());
  }
  EXPECT_EQ(together(pieces(words, {}, many)), want);
}

TEST(Console, ATerminalGetsNoControlCharacters) {
  std::ostringstream out, notes;
  show({.out = out, .notes = notes, .out_is_terminal = true},
       "a\x1b[2J\tb\n\xC2\x9B"
       "c\u00e9\x7F");
  EXPECT_EQ(out.str(),
            "a\uFFFD[2J\tb\n\uFFFD"
            "c\u00e9\uFFFD");
  out.str("");
  show({.out = out, .notes = notes}, "a\x1b[2J");
  EXPECT_EQ(out.str(), "a\x1b[2J");
}

}  // namespace
}  // namespace infer
