// Goal: a resized picture has the bytes that Pillow gives it.
// Method: what follows from the filter, and pictures that Pillow 13.0 has resized (Image.resize, BICUBIC).
#include "data/prepare/images/image_source.h"

#include <gmock/gmock.h>

#include "tests/data/prepare/image_files.h"

namespace data::prepare {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

Picture gray(const std::vector<std::uint8_t>& values, int height) {
  Picture out{height, static_cast<int>(values.size()) / height, {}};
  for (const auto value : values) out.rgb.insert(out.rgb.end(), 3, value);
  return out;
}

std::vector<int> first_channel(const Picture& picture) {
  std::vector<int> out;
  for (std::size_t i = 0; i < picture.rgb.size(); i += 3) out.push_back(picture.rgb[i]);
  return out;
}

TEST(ResizeBicubic, KeepsAPictureOfTheSameSidesAndOneOfOneColor) {
  const auto picture = smooth_picture(13, 29);
  EXPECT_EQ(resize_bicubic(picture, 13, 29), picture);
  const Picture plain{5, 7, std::vector<std::uint8_t>(std::size_t{3} * 5 * 7, 201)};
  for (const auto& [height, width] : {std::pair{2, 3}, {11, 30}, {1, 1}, {5, 2}}) {
    const auto other = resize_bicubic(plain, height, width);
    EXPECT_EQ(other.height, height);
    EXPECT_EQ(other.width, width);
    EXPECT_THAT(other.rgb, Each(201)) << height << " x " << width;
  }
}

TEST(ResizeBicubic, GivesThePixelsOfPillow) {
  const auto row = gray({0, 255, 30, 200, 90, 90, 10, 250, 128, 64}, 1);
  EXPECT_THAT(first_channel(resize_bicubic(row, 1, 4)), ElementsAre(117, 123, 96, 133));
  EXPECT_THAT(first_channel(resize_bicubic(row, 1, 7)), ElementsAre(90, 132, 149, 88, 58, 203, 78));
  EXPECT_THAT(first_channel(resize_bicubic(row, 1, 16)),
              ElementsAre(0, 112, 253, 87, 63, 196, 146, 84, 93, 43, 17, 191, 237, 135, 83, 59));
  std::vector<std::uint8_t> values;
  for (int y = 0; y < 6; ++y)
    for (int x = 0; x < 5; ++x) values.push_back(static_cast<std::uint8_t>((x * 37 + y * 91) % 256));
  const auto square = gray(values, 6);
  EXPECT_THAT(first_channel(resize_bicubic(square, 2, 3)), ElementsAre(94, 103, 148, 136, 117, 97));
  EXPECT_THAT(first_channel(resize_bicubic(square, 8, 7)),
              ElementsAre(0, 13, 43, 69, 95, 125, 145, 49, 67, 103, 143, 169, 199, 219, 134, 161, 160, 111, 134, 167,
                          187, 170, 206, 160, 0, 18, 56, 77, 25, 47, 69, 78, 102, 139, 166, 61, 79, 118, 167, 207, 140,
                          55, 146, 173, 173, 127, 163, 104, 23, 202, 240, 187, 8, 26, 70, 98));
}

TEST(ResizeBicubic, CutsOffWhereTheFilterSwingsOver) {
  const auto larger = first_channel(resize_bicubic(gray({0, 0, 0, 255, 255, 255}, 1), 1, 24));
  EXPECT_THAT(larger, Each(::testing::AllOf(::testing::Ge(0), ::testing::Le(255))));
  EXPECT_EQ(larger.front(), 0);
  EXPECT_EQ(larger.back(), 255);
}

TEST(ResizeBicubic, RefusesSidesThatNoPictureHas) {
  EXPECT_THROW(resize_bicubic(smooth_picture(3, 4), 0, 4), std::invalid_argument);
  EXPECT_THROW(resize_bicubic(smooth_picture(3, 4), 3, kMostSide + 1), std::invalid_argument);
}

}  // namespace
}  // namespace data::prepare
