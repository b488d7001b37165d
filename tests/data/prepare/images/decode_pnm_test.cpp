// Goal: netpbm's pixmaps and graymaps, as text and as bytes, become RGB; everything else is refused by name.
#include <gmock/gmock.h>

#include "tests/data/prepare/image_files.h"
#include "tests/temporary_folder.h"

namespace data::prepare {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(DecodePnm, GivesEachPixel) {
  const auto picture = smooth_picture(5, 7);
  EXPECT_EQ(decode(ppm_file(picture), "a.ppm"), picture);
}

TEST(DecodePnm, ReadsTextsWithComments) {
  const auto picture = decode("P3 # pixels\n2 1\n# the largest value\n255\n1 2 3\n4 5 6", "a.ppm");
  EXPECT_EQ(picture.width, 2);
  EXPECT_EQ(picture.height, 1);
  EXPECT_THAT(picture.rgb, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(decode("P2 2 1 3 0 2\n", "a.pgm").rgb, ElementsAre(0, 0, 0, 170, 170, 170));
}

TEST(DecodePnm, ScalesOtherLargestValues) {
  using namespace std::string_literals;
  EXPECT_THAT(decode("P5 2 1 15\n\x00\x0f"s, "a.pgm").rgb, ElementsAre(0, 0, 0, 255, 255, 255));
  EXPECT_THAT(decode("P5 2 1 65535\n\x80\x80\x00\x7f"s, "a.pgm").rgb, ElementsAre(128, 128, 128, 0, 0, 0));
}

TEST(DecodePnm, RefusesWhatIsNotWhole) {
  EXPECT_THAT(refusal("P6 2 2 255\nabc", "a.ppm"), HasSubstr("want 12 bytes of samples, there are 3"));
  EXPECT_THAT(refusal("P6 2 x 255\n", "a.ppm"), HasSubstr("a.ppm: is not a whole pixmap (byte 5: there is no height)"));
  EXPECT_THAT(refusal("P6 0 2 255\n", "a.ppm"), HasSubstr("has 0 x 2 pixels"));
  EXPECT_THAT(refusal("P6 2 2 65536\n", "a.ppm"), HasSubstr("largest value is above 65535"));
  EXPECT_THAT(refusal("P6 2 2 0\n", "a.ppm"), HasSubstr("largest value is 0"));
  EXPECT_THAT(refusal("P5 1 1 9\n\x20", "a.pgm"), HasSubstr("sample 32 is above 9"));
  EXPECT_THAT(refusal("P3 1 1 9\n1 2 10", "a.ppm"), HasSubstr("sample is above 9"));
  EXPECT_THAT(refusal("P6 16000 16000 255\n", "a.ppm"), HasSubstr("which is more than"));
  EXPECT_THAT(refusal("P6 99999999999 1 255\n", "a.ppm"), HasSubstr("width is above"));
}

TEST(Decode, NamesOtherFormats) {
  using namespace std::string_view_literals;
  EXPECT_THAT(refusal("GIF89a.....", "a"), HasSubstr("a: is a GIF image; want JPEG, PNG, PPM or PGM: convert it"));
  EXPECT_THAT(refusal("RIFF\x10\0\0\0WEBPVP8 "sv, "a"), HasSubstr("WebP"));
  EXPECT_THAT(refusal("BM......", "a"), HasSubstr("BMP"));
  EXPECT_THAT(refusal("II*\0...."sv, "a"), HasSubstr("TIFF"));
  EXPECT_THAT(refusal("\0\0\0\x18"
                      "ftypheic"sv,
                      "a"),
              HasSubstr("HEIF or AVIF"));
  EXPECT_THAT(refusal("P4 8 1 x", "a"), HasSubstr("PBM"));
  EXPECT_THAT(refusal("<html>", "a"), HasSubstr("is not an image"));
  EXPECT_THAT(refusal("", "a"), HasSubstr("is empty"));
}

TEST(Decode, NamesAFileThatCannotBeRead) {
  test::TemporaryFolder folder;
  const auto refusal_of = [](const std::filesystem::path& file, const DecodeLimits& limits) {
    try {
      read_picture(file, limits);
    } catch (const std::runtime_error& error) {
      return std::string(error.what());
    }
    return std::string("decoded");
  };
  EXPECT_THAT(refusal_of(folder / "none.png", {}),
              StartsWith((folder / "none.png").native() + ": cannot be opened: No such file"));
  EXPECT_THAT(refusal_of(folder.path(), {}), HasSubstr("is not a regular file"));
  test::write_file(folder / "a.ppm", ppm_file(smooth_picture(3, 3)));
  EXPECT_EQ(refusal_of(folder / "a.ppm", {}), "decoded");
  EXPECT_THAT(refusal_of(folder / "a.ppm", {.file_bytes = 20}),
              HasSubstr("has 38 bytes, and an image file may have 20"));
}

}  // namespace
}  // namespace data::prepare
