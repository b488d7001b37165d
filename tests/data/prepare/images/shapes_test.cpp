// Goal: generated images are the same on every machine, and a label can be learned from them but not from single
// pixels.
#include "data/prepare/images/image_source.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <set>

#include "base/checksum.h"

namespace data::prepare {
namespace {

using ::testing::ElementsAre;

std::uint64_t checksum(const Picture& picture) {
  base::Checksum sum;
  for (const auto value : picture.rgb) sum.add(std::string_view(reinterpret_cast<const char*>(&value), 1));
  return sum.value();
}

TEST(Shapes, AreTheSameOnEveryMachine) {
  EXPECT_THAT((std::vector{checksum(paint(Painted::kShapes, {}, 0)), checksum(paint(Painted::kShapes, {}, 6)),
                           checksum(paint(Painted::kShapes, {}, 1'000'003)),
                           checksum(paint(Painted::kShapes, {.size = 33, .seed = 5}, 7))}),
              ElementsAre(0x222a76faca10e8e5ULL, 0x4be6b387c7ab695ULL, 0xe94b1aa918c835daULL, 0x3d5e4b46a169f416ULL));
  EXPECT_THAT(
      (std::vector{checksum(paint(Painted::kGlyphs, {}, 0)), checksum(paint(Painted::kGlyphs, {.seed = 9}, 35))}),
      ElementsAre(0x9a598e81f85bb23eULL, 0xfeb92df52c02456aULL));
  EXPECT_THAT((std::vector{checksum(paint(Painted::kTextures, {}, 0)), checksum(paint(Painted::kTextures, {}, 5)),
                           checksum(paint(Painted::kTextures, {.size = 33, .seed = 5}, 7))}),
              ElementsAre(0x622b3b4a4b7fc395ULL, 0x936b9998c344782ULL, 0xf6cd6b243c3047c6ULL));
}

TEST(Shapes, DifferByIndexAndSeed) {
  std::set<std::uint64_t> seen;
  for (std::int64_t index = 0; index < 100; ++index) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      seen.insert(checksum(paint(Painted::kShapes, {.size = 16, .seed = seed}, index)));
      seen.insert(checksum(paint(Painted::kGlyphs, {.size = 16, .seed = seed}, index)));
      seen.insert(checksum(paint(Painted::kTextures, {.size = 16, .seed = seed}, index)));
    }
  }
  EXPECT_EQ(seen.size(), 900U);
}

TEST(Shapes, PassEveryImageOnceWithItsLabel) {
  const auto source = open_painted(Painted::kShapes, {.size = 8, .count = 2 * kImagesAPart + 3, .seed = 1});
  EXPECT_EQ(source.parts, 3);
  EXPECT_EQ(source.labels, labels_of(Painted::kShapes));
  std::vector<std::int32_t> labels;
  source.read(2, [&](const Picture& picture, std::int32_t label) {
    EXPECT_EQ(picture.width, 8);
    EXPECT_EQ(picture.rgb.size(), 192U);
    labels.push_back(label);
  });
  EXPECT_THAT(labels, ElementsAre(0, 1, 2));
  EXPECT_THROW(source.read(3, [](const Picture&, std::int32_t) {}), std::out_of_range);
  EXPECT_THROW(source.read(-1, [](const Picture&, std::int32_t) {}), std::out_of_range);
  EXPECT_EQ(open_painted(Painted::kGlyphs, {.count = 36}).labels.size(), 36U);
  EXPECT_EQ(open_painted(Painted::kTextures, {.count = 36}).labels, labels_of(Painted::kTextures));
  EXPECT_THROW(open_painted(Painted::kShapes, {.size = 7}), std::runtime_error);
  EXPECT_THROW(open_painted(Painted::kGlyphs, {.count = 0}), std::runtime_error);
}

/// How often the nearest of 200 pictures, by the distance of all pixels, has the right label: what DINO must beat.
TEST(Shapes, AreNotToldApartByPixelsAlone) {
  const GeneratedOptions options{.size = 24, .seed = 3};
  std::vector<Picture> known;
  for (int i = 0; i < 200; ++i) known.push_back(paint(Painted::kShapes, options, i));
  int right = 0;
  for (int i = 200; i < 280; ++i) {
    const auto asked = paint(Painted::kShapes, options, i);
    std::size_t nearest = 0;
    std::int64_t least = INT64_MAX;
    for (std::size_t k = 0; k < known.size(); ++k) {
      std::int64_t distance = 0;
      for (std::size_t p = 0; p < asked.rgb.size(); ++p) distance += std::abs(asked.rgb[p] - known[k].rgb[p]);
      if (distance < least) least = distance, nearest = k;
    }
    right += static_cast<int>(nearest % 8) == i % 8;
  }
  EXPECT_LT(right, 40) << "of 80, 10 by chance";
}

}  // namespace
}  // namespace data::prepare
