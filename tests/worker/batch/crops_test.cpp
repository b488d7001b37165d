// Goal: crops and masks depend on image and seed alone, and are within the bounds of their options. Method: made
// images. What each step makes of pixels is compared with a second computation in Python by dinov2_peers_test.cpp.
#include "worker/batch/images.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "worker/batch/augment.h"

namespace worker {
namespace {

using ::testing::HasSubstr;

/// An image of made colours.
class MadeImage {
 public:
  MadeImage(int height, int width)
      : rgb_(static_cast<std::size_t>(height * width * 3)), height_(height), width_(width) {
    data::order::Random random(9, 0);
    for (auto& value : rgb_) value = static_cast<std::uint8_t>(random.below(256));
  }
  data::format::Image view() const { return {.rgb = rgb_, .height = height_, .width = width_}; }

 private:
  std::vector<std::uint8_t> rgb_;
  int height_, width_;
};

CropOptions small_crops() {
  return {.global_size = 24, .local_size = 12, .local_crops = 3, .patch_size = 4};
}

std::string error_of_crops(const CropOptions& options) {
  try {
    check_crops(options);
    return "no error";
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

TEST(Crops, DependOnTheSeedAlone) {
  const MadeImage image(40, 30);
  const Crops one = crops_of(image.view(), small_crops(), 5), again = crops_of(image.view(), small_crops(), 5),
              other = crops_of(image.view(), small_crops(), 6);
  EXPECT_EQ(one.global.sizes(), (at::IntArrayRef{2, 3, 24, 24}));
  EXPECT_EQ(one.local.sizes(), (at::IntArrayRef{3, 3, 12, 12}));
  EXPECT_EQ(one.masks.sizes(), (at::IntArrayRef{2, 36}));
  EXPECT_TRUE(at::equal(one.global, again.global));
  EXPECT_TRUE(at::equal(one.local, again.local));
  EXPECT_TRUE(at::equal(one.masks, again.masks));
  EXPECT_FALSE(at::equal(one.global, other.global));
  EXPECT_FALSE(at::equal(one.global[0], one.global[1]));
  EXPECT_FALSE(at::equal(one.local[0], one.local[1]));
  auto fewer = small_crops();
  fewer.local_crops = 0;
  const Crops without = crops_of(image.view(), fewer, 5);
  EXPECT_EQ(without.local.sizes(), (at::IntArrayRef{0, 3, 12, 12}));
  EXPECT_TRUE(at::equal(without.global, one.global)) << "a view does not depend on how many others there are";
}

TEST(Crops, OfTheSmallestAndOfFlatImagesAreThere) {
  for (const auto& [height, width] : {std::pair{1, 1}, {1, 300}, {300, 2}}) {
    const MadeImage image(height, width);
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      const Crops crops = crops_of(image.view(), small_crops(), seed);
      EXPECT_TRUE(crops.global.isfinite().all().item<bool>());
      EXPECT_TRUE(crops.local.isfinite().all().item<bool>());
    }
    EXPECT_EQ(middle_crop(image.view(), 16).sizes(), (at::IntArrayRef{3, 16, 16}));
  }
}

TEST(Crops, MaskHalfOfTheGlobalCropsAndBetweenTheTwoShares) {
  const MadeImage image(30, 30);
  auto options = small_crops();
  options.local_crops = 0;
  int masked = 0;
  std::int64_t most = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Crops crops = crops_of(image.view(), options, seed);
    for (int crop = 0; crop < 2; ++crop) {
      const auto count = crops.masks[crop].sum().item<std::int64_t>();
      EXPECT_LE(count, 18) << "half of 36";
      masked += count > 0;
      most = std::max(most, count);
    }
  }
  EXPECT_GT(masked, 40);
  EXPECT_LT(masked, 80);
  EXPECT_GT(most, 13);
  options.mask_probability = 0;
  EXPECT_FALSE(crops_of(image.view(), options, 1).masks.any().item<bool>());
}

TEST(Crops, OptionsThatDoNotFitAreNamed) {
  EXPECT_EQ(error_of_crops(small_crops()), "no error");
  EXPECT_EQ(error_of_crops({}), "no error");
  auto small = small_crops(), empty = small, turned = small, probable = small;
  small.local_size = 3;
  empty.local_low = 0;
  turned.mask_low = 0.6;
  probable.mask_probability = 1.5;
  EXPECT_THAT(error_of_crops(small), HasSubstr("local_size = 3: want a side of at least 5 pixels"));
  small.local_crops = 0;
  EXPECT_EQ(error_of_crops(small), "no error") << "no local crop is made";
  EXPECT_THAT(error_of_crops(empty), HasSubstr("local_low = 0: want a share above 0"));
  EXPECT_THAT(error_of_crops(turned), HasSubstr("mask_high = 0.500000: want a share from mask_low to 1"));
  EXPECT_THAT(error_of_crops(probable), HasSubstr("mask_probability = 1.500000"));
}

// Goal: each view is changed as often and as much as DINOv2 has it.
// Method: many seeds, and images that show a change. Every view has the size of the image and shows all of it.
class ViewsOfWholeImages : public ::testing::Test {
 protected:
  static constexpr int kSide = 24, kSeeds = 300;

  // More threads only wait for each other at images of this size.
  static void SetUpTestSuite() { at::set_num_threads(1); }

  /// By kind of view, [seeds, 3, height, width], as pixels from 0 to 1.
  struct Views {
    at::Tensor first, second, local;
  };
  /// `color_of` gives the channels of a pixel, from 0 to 255, by its column.
  static Views views(const std::function<std::array<int, 3>(int column)>& color_of) {
    std::vector<std::uint8_t> rgb;
    for (int i = 0; i < kSide * kSide; ++i) {
      for (const int channel : color_of(i % kSide)) rgb.push_back(static_cast<std::uint8_t>(channel));
    }
    CropOptions options = {.global_size = kSide, .local_size = kSide, .local_crops = 1, .patch_size = 4};
    options.global_low = options.global_high = options.local_low = options.local_high = 1;
    std::vector<at::Tensor> all;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      const Crops crops = crops_of({.rgb = rgb, .height = kSide, .width = kSide}, options, seed);
      all.push_back(at::cat({crops.global, crops.local}));
    }
    const at::Tensor mean = at::tensor({0.485f, 0.456f, 0.406f}).view({3, 1, 1});
    const at::Tensor deviation = at::tensor({0.229f, 0.224f, 0.225f}).view({3, 1, 1});
    const at::Tensor pixels = at::stack(all) * deviation + mean;
    return {pixels.select(1, 0), pixels.select(1, 1), pixels.select(1, 2)};
  }
  static Views views_of_one_color(int r, int g, int b) {
    return views([=](int) { return std::array{r, g, b}; });
  }

  /// The share of the seeds for which `is_so` is true; within three deviations of `probability`.
  static void expect_share(const at::Tensor& is_so, double probability, const char* what) {
    ASSERT_EQ(is_so.sizes(), (at::IntArrayRef{kSeeds}));
    const double share = is_so.to(at::kFloat).mean().item<double>();
    EXPECT_NEAR(share, probability, 3 * std::sqrt(probability * (1 - probability) / kSeeds)) << what;
  }
};

TEST_F(ViewsOfWholeImages, AreMirroredHalfOfTheTime) {
  const Views of = views([](int column) {
    return column < kSide / 2 ? std::array{40, 40, 40} : std::array{100, 100, 100};
  });
  for (const auto& [view, what] : {std::pair{of.first, "first"}, {of.second, "second"}, {of.local, "local"}}) {
    const at::Tensor columns = view.mean({1, 2});
    expect_share(columns.narrow(1, 0, kSide / 2).mean(1) > columns.narrow(1, kSide / 2, kSide / 2).mean(1), 0.5, what);
  }
}

TEST_F(ViewsOfWholeImages, AreGreyOnceInFiveAndLeftAsTheyAreOnceInFive) {
  const Views of = views_of_one_color(110, 80, 60);  // as it is, too dark to be solarized
  for (const auto& [view, what] : {std::pair{of.first, "first"}, {of.second, "second"}, {of.local, "local"}}) {
    const at::Tensor channels = view.mean({2, 3});
    const at::Tensor chroma = channels.amax(1) - channels.amin(1);
    expect_share(chroma < 1e-4, 0.2, what);
    const at::Tensor change = (channels - at::tensor({110, 80, 60}) / 255.0).abs().amax(1);
    expect_share(change < 1e-4, 0.2 * 0.8, what);
  }
}

TEST_F(ViewsOfWholeImages, AreSolarizedOnceInFiveIfTheyAreTheSecond) {
  const Views of = views_of_one_color(250, 235, 242);  // above the threshold at the least brightness
  expect_share(of.second.amax({1, 2, 3}) < 0.5, 0.2, "second");
  EXPECT_FALSE((of.first < 0.5).any().item<bool>());
  EXPECT_FALSE((of.local < 0.5).any().item<bool>());
}

TEST_F(ViewsOfWholeImages, AreBlurredAlwaysIfTheyAreTheFirst) {
  const Views of = views([](int column) {
    return column == kSide / 2 ? std::array{255, 255, 255} : std::array{50, 50, 50};
  });
  // The line is in one of the two middle columns. Blurring makes what is beside it brighter than what is far from it.
  const auto is_blurred = [](const at::Tensor& view) {
    const at::Tensor beside =
        at::cat({view.narrow(3, 0, kSide / 2 - 1), view.narrow(3, kSide / 2 + 1, kSide / 2 - 1)}, 3);
    return beside.amax({1, 2, 3}) - beside.amin({1, 2, 3}) > 1e-4;
  };
  // Deviations are uniform from 0.1 to 2 pixels. Below 0.25 they leave no trace.
  constexpr double kSeen = (2 - 0.25) / (2 - 0.1);
  expect_share(is_blurred(of.first), 1.0 * kSeen, "first");
  expect_share(is_blurred(of.second), 0.1 * kSeen, "second");
  expect_share(is_blurred(of.local), 0.5 * kSeen, "local");
}

// Brightness and contrast change by up to 0.4, saturation by up to 0.2, the hue by up to a tenth of the circle.
TEST_F(ViewsOfWholeImages, AreJitteredWithinTheirBounds) {
  const Views of = views_of_one_color(120, 90, 90);                   // the hue is 0
  const at::Tensor all = at::cat({of.first, of.local}).mean({2, 3});  // never solarized
  const at::Tensor r = all.select(1, 0), g = all.select(1, 1), b = all.select(1, 2);
  const at::Tensor chroma = all.amax(1) - all.amin(1), luminance = 0.2989 * r + 0.587 * g + 0.114 * b;
  const at::Tensor is_colored = chroma > 1e-3;
  const double luminance_before = (0.2989 * 120 + 0.587 * 90 + 0.114 * 90) / 255, chroma_before = 30.0 / 255;
  const auto range_of = [&](const at::Tensor& values) {
    const at::Tensor chosen = values.masked_select(is_colored);
    return std::pair{chosen.min().item<double>(), chosen.max().item<double>()};
  };
  const auto [least_hue, most_hue] = range_of((g - b) / chroma / 6);
  const auto [darkest, brightest] = range_of(luminance / luminance_before);
  const auto [palest, fullest] = range_of(chroma / luminance * luminance_before / chroma_before);
  EXPECT_NEAR(least_hue, -0.1, 0.005);
  EXPECT_NEAR(most_hue, 0.1, 0.005);
  // A turned hue changes the luminance by a tenth at most, and the color's strength relative to it.
  EXPECT_GT(darkest, 0.6 * 0.9);
  EXPECT_LT(darkest, 0.65);
  EXPECT_GT(brightest, 1.35);
  EXPECT_LT(brightest, 1.4 * 1.1);
  // Contrast alone would leave from 0.6 to 1.4 of the color, saturation alone from 0.8 to 1.2.
  EXPECT_GT(palest, 0.6 * 0.8 * 0.9);
  EXPECT_LT(palest, 0.54);
  EXPECT_GT(fullest, 1.54);
  EXPECT_LT(fullest, 1.4 * 1.2 * 1.1);
}

TEST(BlockMask, MasksAtMostSoManyPatchesAndMostOftenAll) {
  int exact = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    data::order::Random random(seed, 0);
    const auto count = static_cast<std::int64_t>(seed % 98);
    const auto mask = block_mask(14, 14, count, random);
    ASSERT_EQ(mask.size(), 196u);
    const auto masked = std::count(mask.begin(), mask.end(), 1);
    EXPECT_LE(masked, count);
    exact += masked == count;
  }
  EXPECT_GT(exact, 150);
}

TEST(BlockMask, IsOfBlocks) {
  int beside = 0, masked = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    data::order::Random random(seed, 0);
    const auto mask = block_mask(14, 14, 60, random);
    for (std::size_t i = 0; i < mask.size(); ++i) {
      if (mask[i] == 0 || i % 14 == 13) continue;
      ++masked;
      beside += mask[i + 1];
    }
  }
  // Patches that are masked one by one would have a masked neighbour in 60 of 196 cases.
  EXPECT_GT(beside, masked * 6 / 10);
}

TEST(RandomBox, HasAnAreaAndAShapeWithinItsBounds) {
  data::order::Random random(4, 0);
  for (int i = 0; i < 300; ++i) {
    const Box box = random_box(200, 300, 0.05, 0.32, random);
    ASSERT_GE(box.top, 0);
    ASSERT_GE(box.left, 0);
    ASSERT_LE(box.top + box.height, 200);
    ASSERT_LE(box.left + box.width, 300);
    const double area = static_cast<double>(box.height * box.width) / (200 * 300);
    const double ratio = static_cast<double>(box.width) / static_cast<double>(box.height);
    EXPECT_GT(area, 0.045);
    EXPECT_LT(area, 0.335);
    EXPECT_GT(ratio, 0.72);
    EXPECT_LT(ratio, 1.37);
  }
  const Box flat = random_box(10, 300, 0.9, 1.0, random);  // no box of that area fits
  EXPECT_EQ(flat.height, 10);
  EXPECT_EQ(flat.width, 13);
  EXPECT_EQ(flat.left, 143);
}

TEST(Augment, NeutralChangesChangeNothing) {
  at::manual_seed(1);
  const at::Tensor image = at::rand({3, 9, 7});
  EXPECT_TRUE(at::equal(with_brightness(image, 1), image));
  EXPECT_TRUE(at::allclose(with_contrast(image, 1), image));
  EXPECT_TRUE(at::allclose(with_saturation(image, 1), image));
  EXPECT_TRUE(at::allclose(with_hue(image, 0), image, 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(with_hue(with_hue(image, 0.3), -0.3), image, 1e-4, 1e-5));
  EXPECT_TRUE(at::equal(mirrored(mirrored(image)), image));
  EXPECT_TRUE(
      at::equal(mirrored(at::tensor({1., 2., 3., 4.}).view({1, 2, 2})), at::tensor({2., 1., 4., 3.}).view({1, 2, 2})))
      << "left and right change places, not top and bottom";
  EXPECT_TRUE(at::equal(solarized(image, 1.1), image));
  const at::Tensor plain = at::full({3, 9, 7}, 0.4);
  EXPECT_TRUE(at::allclose(blurred(plain, 1.5), plain)) << "one colour has no detail";
  EXPECT_TRUE(at::allclose(with_hue(plain, 0.2), plain)) << "grey has no hue";
}

TEST(Augment, APartOfAnImageIsThatPart) {
  const MadeImage image(8, 6);
  const at::Tensor all = resized_part(image.view(), {.top = 0, .left = 0, .height = 8, .width = 6}, 8, 6);
  EXPECT_NEAR(all[1][2][3].item<double>(), image.view().rgb[(2 * 6 + 3) * 3 + 1] / 255.0, 1e-6);
  const at::Tensor part = resized_part(image.view(), {.top = 2, .left = 1, .height = 5, .width = 3}, 5, 3);
  EXPECT_TRUE(at::allclose(part, all.slice(1, 2, 7).slice(2, 1, 4), 1e-5, 1e-6));
  EXPECT_THROW(resized_part(image.view(), {.top = 4, .left = 0, .height = 5, .width = 6}, 5, 5), c10::Error);
  data::format::Image torn = image.view();
  torn.rgb = torn.rgb.first(10);
  EXPECT_THROW(resized_part(torn, {.top = 0, .left = 0, .height = 1, .width = 1}, 5, 5), c10::Error);
}

}  // namespace
}  // namespace worker
