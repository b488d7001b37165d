// Goal: a shrunk picture has the right sides, and each pixel is the mean of its area.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/data/prepare/image_files.h"

namespace data::prepare {
namespace {

using ::testing::ElementsAre;

TEST(Shrink, KeepsTheProportionAndNeverEnlarges) {
  const auto sides = [](int height, int width, int shorter) {
    const auto picture = shrink(smooth_picture(height, width), shorter);
    return std::vector{picture.height, picture.width};
  };
  EXPECT_THAT(sides(40, 60, 20), ElementsAre(20, 30));
  EXPECT_THAT(sides(60, 40, 20), ElementsAre(30, 20));
  EXPECT_THAT(sides(7, 10, 5), ElementsAre(5, 7));   // 7.14
  EXPECT_THAT(sides(10, 17, 5), ElementsAre(5, 9));  // 8.5
  EXPECT_THAT(sides(10, 20, 10), ElementsAre(10, 20));
  EXPECT_THAT(sides(3, 4, 256), ElementsAre(3, 4));
  EXPECT_THROW(shrink(smooth_picture(3, 4), 0), std::invalid_argument);
}

TEST(Shrink, AveragesWholeBlocksExactly) {
  const Picture picture{
      2, 4, {0, 0, 0, 10, 20, 30, 255, 255, 255, 255, 255, 255, 0, 0, 0, 30, 40, 50, 255, 255, 255, 255, 255, 254}};
  EXPECT_EQ(shrink(picture, 1), (Picture{1, 2, {10, 15, 20, 255, 255, 255}}));
}

/// The mean of the area of each new pixel, computed in the plainest way.
Picture area_means(const Picture& in, int height, int width) {
  Picture out{height, width, {}};
  const double tall = static_cast<double>(in.height) / height, wide = static_cast<double>(in.width) / width;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < 3; ++c) {
        double sum = 0;
        for (int j = 0; j < in.height; ++j) {
          const double rows = std::min<double>(j + 1, (y + 1) * tall) - std::max<double>(j, y * tall);
          for (int i = 0; i < in.width && rows > 0; ++i) {
            const double columns = std::min<double>(i + 1, (x + 1) * wide) - std::max<double>(i, x * wide);
            if (columns > 0) sum += rows * columns * in.rgb[static_cast<std::size_t>((j * in.width + i) * 3 + c)];
          }
        }
        out.rgb.push_back(static_cast<std::uint8_t>(std::lround(sum / (tall * wide))));
      }
    }
  }
  return out;
}

TEST(Shrink, IsTheMeanOfEachArea) {
  for (const auto& [height, width, shorter] : {std::array{23, 31, 7}, std::array{31, 17, 16}, std::array{9, 40, 5}}) {
    const auto picture = smooth_picture(height, width);
    const auto small = shrink(picture, shorter);
    const auto want = area_means(picture, small.height, small.width);
    for (std::size_t i = 0; i < want.rgb.size(); ++i) {
      ASSERT_NEAR(small.rgb[i], want.rgb[i], 1) << height << " x " << width << " at " << i;
    }
  }
}

TEST(Shrink, DoesNotAliasFinePatterns) {
  Picture stripes{90, 90, {}};
  for (int i = 0; i < 90 * 90 * 3; ++i) stripes.rgb.push_back(i / 3 % 2 == 0 ? 0 : 255);
  for (const auto value : shrink(stripes, 30).rgb) EXPECT_NEAR(value, 128, 43);  // a third of a stripe
}

}  // namespace
}  // namespace data::prepare
