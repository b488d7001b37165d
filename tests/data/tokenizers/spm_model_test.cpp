// Goal: a model file of sentencepiece is read as it is, and a damaged or hostile one is refused by byte or piece.
#include "data/tokenizers/spm_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "tests/data/tokenizers/small_spm.h"
#include "tests/data/tokenizers/small_tokenizers.h"

namespace data::tokenizers {
namespace {

using test::bytes_field;
using test::error_of;
using test::float_field;
using test::number_field;
using test::proto_of;
using test::small_llama;
using test::small_model;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

SpmModel model_of_two() {
  return small_model(SpmAlgorithm::kUnigram, {"a", test::kSpace + "b"});
}

std::string refusal(std::string_view bytes) {
  return error_of([&] { read_spm_model(bytes); });
}

/// `model_of_two` with bytes before it.
std::string refusal_after(const std::string& bytes) {
  return refusal(bytes + proto_of(model_of_two()));
}

TEST(SpmModel, AFileIsReadAsItIs) {
  SpmModel written = small_llama({"a", test::kSpace + "\xC3\xA9"});
  written.charsmap = std::string("\x04\0\0\0\0\0\0\0rest", 12);
  written.treat_whitespace_as_suffix = true;
  written.add_dummy_prefix = false;
  written.escape_whitespaces = false;
  const SpmModel read = read_spm_model(proto_of(written));
  ASSERT_EQ(read.pieces.size(), written.pieces.size());
  for (std::size_t id = 0; id < read.pieces.size(); ++id) {
    EXPECT_EQ(read.pieces[id].text, written.pieces[id].text) << id;
    EXPECT_EQ(read.pieces[id].score, written.pieces[id].score) << id;
    EXPECT_EQ(read.pieces[id].type, written.pieces[id].type) << id;
  }
  EXPECT_EQ(read.unknown, 0U);
  EXPECT_EQ(read.algorithm, SpmAlgorithm::kBpe);
  EXPECT_TRUE(read.byte_fallback);
  EXPECT_TRUE(read.treat_whitespace_as_suffix);
  EXPECT_EQ(read.charsmap, written.charsmap);
  EXPECT_FALSE(read.add_dummy_prefix);
  EXPECT_FALSE(read.remove_extra_whitespaces);
  EXPECT_FALSE(read.escape_whitespaces);
}

TEST(SpmModel, WhatTheFileLeavesOutHasTheDefaultsOfTheFormat) {
  const SpmModel read =
      read_spm_model(proto_of(SpmPiece{"<unk>", 0, SpmType::kUnknown}) + bytes_field(2, "") + bytes_field(3, ""));
  EXPECT_EQ(read.algorithm, SpmAlgorithm::kUnigram);
  EXPECT_FALSE(read.byte_fallback);
  EXPECT_TRUE(read.add_dummy_prefix);
  EXPECT_TRUE(read.remove_extra_whitespaces);
  EXPECT_TRUE(read.escape_whitespaces);
}

TEST(SpmModel, FieldsOfLaterVersionsArePassedOver) {
  const std::string later = number_field(200, 7) + bytes_field(1000, "new") + float_field(9, 1) +
                            std::string(
                                "\x51"
                                "12345678");  // field 10 with 64 bits
  EXPECT_EQ(refusal_after(later), "");
  EXPECT_EQ(refusal(proto_of(model_of_two()) + bytes_field(2, later) + bytes_field(3, later)), "");
}

TEST(SpmModel, TheSameMessageTwiceIsOneMessage) {
  const SpmModel read = read_spm_model(proto_of(model_of_two()) + bytes_field(2, number_field(3, 2)));
  EXPECT_EQ(read.algorithm, SpmAlgorithm::kBpe);
  EXPECT_TRUE(read.add_dummy_prefix);
}

TEST(SpmModel, EveryCutOfAGoodFileIsRefused) {
  const std::string good = proto_of(model_of_two());
  for (std::size_t bytes = 0; bytes < good.size(); ++bytes) {
    EXPECT_THAT(refusal(std::string_view(good).substr(0, bytes)), StartsWith("byte ")) << bytes;
  }
  EXPECT_EQ(refusal(good), "");
}

TEST(SpmModel, AnyChangedByteGivesAModelOrAnError) {
  const std::string good = proto_of(model_of_two());
  std::mt19937 random(3);
  for (int i = 0; i < 20'000; ++i) {
    std::string bad = good;
    for (int changes = 0; changes < 3; ++changes) bad[random() % bad.size()] = static_cast<char>(random());
    const std::string error = refusal(bad);
    if (!error.empty()) {
      EXPECT_THAT(error, ::testing::AnyOf(StartsWith("byte "), StartsWith("piece "), StartsWith("no piece "),
                                          StartsWith("trainer_spec ")));
    }
  }
}

TEST(SpmModel, WhatIsNoMessageIsRefusedByItsByte) {
  EXPECT_EQ(
      refusal("{\"version\": 1}"),
      "byte 0: in the message ModelProto, field 15 has the unknown wire type 3; the file is damaged or is no model "
      "of sentencepiece: copy it again");
  EXPECT_THAT(refusal(""), StartsWith("byte 0: the file ends without trainer_spec; it was cut"));
  EXPECT_THAT(refusal(std::string_view("\0", 1)),
              StartsWith("byte 0: in the message ModelProto, no field has the number 0"));
  EXPECT_THAT(refusal("\x0A\x05"
                      "abc"),
              StartsWith("byte 0: in the message ModelProto, field 1 has 5 bytes, but only 3 follow"));
}

TEST(SpmModel, NumbersThatDoNotEndAreRefused) {
  EXPECT_THAT(refusal("\x80"), StartsWith("byte 0: in the message ModelProto, a number ends after the message"));
  EXPECT_THAT(refusal(std::string(10, '\xFF')), HasSubstr("a number has more than 64 bits"));
  EXPECT_THAT(refusal(std::string("\x0A") + std::string(9, '\xFF') + "\x01"),
              HasSubstr("field 1 has 18446744073709551615 bytes"));
}

TEST(SpmModel, AFieldOfAnotherTypeIsRefused) {
  EXPECT_THAT(refusal_after(number_field(1, 3)), HasSubstr("field 1 has the wire type 0, want bytes"));
  EXPECT_THAT(refusal_after(bytes_field(1, number_field(1, 3))), HasSubstr("in piece 0, field 1 has the wire type 0"));
  EXPECT_THAT(refusal_after(bytes_field(1, bytes_field(2, "1"))),
              HasSubstr("field 2 has the wire type 2, want 32 bits"));
  EXPECT_THAT(refusal_after(bytes_field(2, bytes_field(3, "BPE"))), HasSubstr("in trainer_spec, field 3 has the wire"));
}

TEST(SpmModel, PiecesThatCannotBeAreRefused) {
  const auto refused = [](const SpmPiece& piece) { return refusal_after(proto_of(piece)); };
  EXPECT_THAT(refused({"", -1, SpmType::kNormal}), StartsWith("byte 0: piece 0 has no text"));
  EXPECT_THAT(refused({"\xFF", -1, SpmType::kNormal}), StartsWith("byte 2: in piece 0, field 1 is not UTF-8"));
  EXPECT_THAT(refused({std::string(1025, 'x'), -1, SpmType::kNormal}), HasSubstr("1025 bytes, more than the 1024"));
  EXPECT_EQ(refused({std::string(1024, 'x'), -1, SpmType::kNormal}), "");
  EXPECT_THAT(refused({"x", std::numeric_limits<float>::quiet_NaN(), SpmType::kNormal}), HasSubstr("not finite"));
  EXPECT_THAT(refused({"x", -std::numeric_limits<float>::infinity(), SpmType::kNormal}), HasSubstr("not finite"));
  EXPECT_THAT(refused({"x", -1, static_cast<SpmType>(7)}), HasSubstr("field 3 is 7, want 1 to 6"));
  EXPECT_EQ(refused({"a", -1, SpmType::kNormal}), "piece 4 is \"a\", as piece 0 is; sentencepiece reads no such file");
  EXPECT_EQ(refused({"?", -1, SpmType::kUnknown}),
            "piece 1 has the type UNKNOWN, as piece 0 has; sentencepiece reads no such file");
}

TEST(SpmModel, AModelWithoutAnUnknownPieceIsRefused) {
  SpmModel model = model_of_two();
  model.pieces[0].type = SpmType::kNormal;
  EXPECT_EQ(refusal(proto_of(model)), "no piece has the type UNKNOWN; is it the right file?");
}

TEST(SpmModel, AModelThatFallsBackToBytesHasAllBytes) {
  SpmModel model = small_llama({});
  model.pieces.pop_back();
  EXPECT_THAT(refusal(proto_of(model)), AllOf(StartsWith("trainer_spec says byte_fallback"), HasSubstr("<0xFF>")));
  model.pieces.push_back({"<0xFF>", 0, SpmType::kNormal});
  EXPECT_THAT(refusal(proto_of(model)), HasSubstr("no piece of type BYTE is \"<0xFF>\""));
}

TEST(SpmModel, ACharsmapWhoseTrieLeadsOutOfItIsRefused) {
  for (const std::string& charsmap :
       {std::string("\x04"), std::string("\0\0\0\0\0\0\0\0", 8), std::string("\x05\0\0\0....", 8),
        std::string("\x08\0\0\0....", 8), std::string("\xFC\xFF\xFF\xFF....", 8)}) {
    SpmModel model = model_of_two();
    model.charsmap = charsmap;
    EXPECT_THAT(refusal(proto_of(model)), HasSubstr("in normalizer_spec, field 2 is no charsmap"));
  }
}

}  // namespace
}  // namespace data::tokenizers
