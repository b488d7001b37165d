// Goal: every kind of PNG becomes the RGB that Pillow's convert("RGB") makes of it.
// Method: files that the test writes chunk by chunk, with samples whose RGB is known.
#include <gmock/gmock.h>

#include "tests/data/prepare/image_files.h"

namespace data::prepare {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(DecodePng, GivesEachPixelOfRgb) {
  const auto picture = smooth_picture(13, 29);
  EXPECT_EQ(decode(png_file(29, 13, kPngRgb, 8, rows_of(picture)), "a.png"), picture);
}

TEST(DecodePng, GivesGrayAsThreeEqualValues) {
  const auto picture = decode(png_file(2, 1, kPngGray, 8, {{7, 250}}), "a.png");
  EXPECT_THAT(picture.rgb, ElementsAre(7, 7, 7, 250, 250, 250));
  EXPECT_THAT(decode(png_file(4, 1, kPngGray, 2, {{0b00011011}}), "a.png").rgb,
              ElementsAre(0, 0, 0, 85, 85, 85, 170, 170, 170, 255, 255, 255));
}

TEST(DecodePng, GivesPaletteEntriesAsTheirColors) {
  const auto palette = png_chunk("PLTE", text_of({10, 20, 30, 200, 100, 0}));
  EXPECT_THAT(decode(png_file(2, 1, kPngPalette, 8, {{1, 0}}, palette), "a.png").rgb,
              ElementsAre(200, 100, 0, 10, 20, 30));
}

TEST(DecodePng, DropsTransparencyAndKeepsColors) {
  EXPECT_THAT(decode(png_file(3, 1, kPngRgba, 8, {{9, 8, 7, 255, 9, 8, 7, 0, 200, 100, 50, 120}}), "a.png").rgb,
              ElementsAre(9, 8, 7, 9, 8, 7, 200, 100, 50));
  EXPECT_THAT(decode(png_file(2, 1, kPngGrayAlpha, 8, {{50, 255, 60, 0}}), "a.png").rgb,
              ElementsAre(50, 50, 50, 60, 60, 60));
  const auto palette = png_chunk("PLTE", text_of({10, 20, 30, 200, 100, 0})) + png_chunk("tRNS", text_of({0, 128}));
  EXPECT_THAT(decode(png_file(2, 1, kPngPalette, 8, {{1, 0}}, palette), "a.png").rgb,
              ElementsAre(200, 100, 0, 10, 20, 30));
}

TEST(DecodePng, RoundsSixteenBitsWithoutAGammaOfItsOwn) {
  // 0x8080 is 128 of 255 exactly. Taken for linear light it would become 188.
  EXPECT_THAT(decode(png_file(1, 1, kPngRgb, 16, {{0x80, 0x80, 0xff, 0xff, 0x00, 0x00}}), "a.png").rgb,
              ElementsAre(128, 255, 0));
}

TEST(DecodePng, RefusesTooManyPixelsByTheHeaderAlone) {
  // The file says 16,000 x 16,000 pixels and has one row of them.
  const auto bomb = png_file(16'000, 16'000, kPngGray, 8, {Bytes(16'000)});
  EXPECT_THAT(refusal(bomb, "bomb.png"), HasSubstr("bomb.png: has 16000 x 16000 pixels, which is more than 67108864"));
  EXPECT_THAT(refusal(png_file(20'000, 1, kPngGray, 8, {Bytes(20'000)}), "long.png"),
              HasSubstr("a side may have 16384"));
}

TEST(DecodePng, RefusesAFileWithoutItsEnd) {
  const auto file = png_file(4, 1, kPngGray, 8, {{1, 2, 3, 4}});
  EXPECT_EQ(refusal(file, "a.png"), "decoded");
  EXPECT_THAT(refusal(file.substr(0, file.size() - 1), "a.png"),
              HasSubstr("a.png: is not a whole PNG (its last chunk"));
  EXPECT_THAT(refusal(png_file(4, 2, kPngGray, 8, {{1, 2, 3, 4}}), "short.png"),
              StartsWith("short.png: is not a whole PNG"));
}

}  // namespace
}  // namespace data::prepare
