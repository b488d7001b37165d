// Goal: JPEG files of every color kind become RGB within what the compression loses.
// Method: small files that the test encodes with TurboJPEG; means and single values are compared.
#include <gmock/gmock.h>

#include <cstdlib>

#include "tests/data/prepare/image_files.h"

namespace data::prepare {
namespace {

using ::testing::HasSubstr;

/// The largest distance of the pictures' mean colors.
double distance_of_means(const Picture& a, const Picture& b) {
  double most = 0;
  for (std::size_t c = 0; c < 3; ++c) {
    double difference = 0;
    for (std::size_t i = c; i < a.rgb.size(); i += 3) difference += a.rgb[i] - b.rgb[i];
    most = std::max(most, std::abs(difference) * 3 / static_cast<double>(a.rgb.size()));
  }
  return most;
}

int largest_distance(const Picture& a, const Picture& b) {
  int most = 0;
  for (std::size_t i = 0; i < a.rgb.size(); ++i) most = std::max(most, std::abs(a.rgb[i] - b.rgb[i]));
  return most;
}

TEST(DecodeJpeg, GivesRgbWithinTheLossOfTheCompression) {
  const auto picture = smooth_picture(45, 70);
  for (const int subsampling : {TJSAMP_444, TJSAMP_420, TJSAMP_422}) {
    for (const int flags : {0, TJFLAG_PROGRESSIVE}) {
      const auto decoded = decode(jpeg_file(70, 45, picture.rgb, TJPF_RGB, subsampling, flags), "a.jpg");
      ASSERT_EQ(decoded.width, 70);
      ASSERT_EQ(decoded.height, 45);
      EXPECT_LT(distance_of_means(decoded, picture), 1.0);
      EXPECT_LT(largest_distance(decoded, picture), 12);
    }
  }
}

TEST(DecodeJpeg, GivesGrayAsThreeEqualValues) {
  const auto decoded = decode(jpeg_file(8, 8, Bytes(64, 90), TJPF_GRAY, TJSAMP_GRAY), "a.jpg");
  EXPECT_LE(largest_distance(decoded, {8, 8, Bytes(192, 90)}), 1);
}

/// 8 x 8 pixels of one color of four inks.
std::string inks(std::uint8_t c, std::uint8_t m, std::uint8_t y, std::uint8_t k) {
  Bytes pixels;
  for (int i = 0; i < 64; ++i) pixels.insert(pixels.end(), {c, m, y, k});
  return jpeg_file(8, 8, pixels, TJPF_CMYK, TJSAMP_444);
}

Picture one_color(std::uint8_t r, std::uint8_t g, std::uint8_t b) {
  Picture out{8, 8, {}};
  for (int i = 0; i < 64; ++i) out.rgb.insert(out.rgb.end(), {r, g, b});
  return out;
}

TEST(DecodeJpeg, TurnsInksThatAreStoredInvertedIntoRgb) {
  EXPECT_LE(largest_distance(decode(inks(255, 255, 255, 255), "a.jpg"), one_color(255, 255, 255)), 2);
  EXPECT_LE(largest_distance(decode(inks(0, 255, 255, 255), "a.jpg"), one_color(0, 255, 255)), 3);
  EXPECT_LE(largest_distance(decode(inks(255, 255, 255, 100), "a.jpg"), one_color(100, 100, 100)), 2);
}

TEST(DecodeJpeg, TakesInksWithoutAdobesMarkerAsTheyAre) {
  auto file = inks(255, 255, 255, 0);  // stored as luminance 0, two colors of 128, and 0
  const auto marker = file.find("\xff\xee");
  ASSERT_NE(marker, std::string::npos);
  file.erase(marker, 16);
  EXPECT_LE(largest_distance(decode(file, "a.jpg"), one_color(255, 127, 127)), 2);
}

TEST(DecodeJpeg, RefusesTooManyPixelsByTheHeaderAlone) {
  auto file = jpeg_file(8, 8, Bytes(64, 90), TJPF_GRAY, TJSAMP_GRAY);
  const auto frame = file.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  file.replace(frame + 5, 4, "\x3e\x80\x3e\x80");  // height and width 16,000
  EXPECT_THAT(refusal(file, "bomb.jpg"), HasSubstr("bomb.jpg: has 16000 x 16000 pixels, which is more than"));
  file.replace(frame + 5, 4, "\x7f\xff\x7f\xff");
  EXPECT_THAT(refusal(file, "bomb.jpg"), HasSubstr("a side may have 16384"));
}

TEST(DecodeJpeg, AcceptsExtraBytesBeforeAMarker) {
  auto file = jpeg_file(8, 8, Bytes(64, 90), TJPF_GRAY, TJSAMP_GRAY);
  file.insert(20, "\x01\x02\x03");  // behind the first segment
  EXPECT_LE(largest_distance(decode(file, "a.jpg"), one_color(90, 90, 90)), 1);
}

}  // namespace
}  // namespace data::prepare
