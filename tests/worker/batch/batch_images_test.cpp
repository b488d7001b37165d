// Goal: batches of images are laid out as self-distillation and its evaluation read them.
#include "worker/batch/images.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <vector>

#include "base/usage_error.h"
#include "tests/worker/batch_folders.h"
#include "worker/batch/loader.h"

namespace worker {
namespace {

using testing::collated;
using testing::expect_equal;
using ::testing::HasSubstr;
using testing::message_of;
using testing::Numbers;
using testing::numbers_of;
using testing::TemporaryFolder;

/// Images of 40 x 30 pixels whose brightness tells their number.
class ImageFolder {
 public:
  explicit ImageFolder(std::uint8_t images) {
    data::format::Writer writer(folder_ / data::format::file_name("train", 0), data::format::Kind::kImages, 0, {});
    for (std::uint8_t image = 0; image < images; ++image) {
      std::vector<std::uint8_t> rgb(40 * 30 * 3);
      for (std::size_t i = 0; i < rgb.size(); ++i) rgb[i] = static_cast<std::uint8_t>(image * 20 + i % 17);
      writer.add(data::format::Image{rgb, 40, 30}, image % 3 - 1);
    }
    data::format::Description description;
    description.kind = data::format::Kind::kImages;
    description.source = description.made_by = "a test";
    description.fields = {"image"};
    description.labels = {"circle", "square"};
    description.splits["train"].files = {writer.finish()};
    data::format::write_description(folder_.path(), description);
  }
  std::shared_ptr<const data::format::Dataset> open() const {
    return std::make_shared<data::format::Dataset>(data::format::Dataset::open(folder_.path(), "train"));
  }

 private:
  TemporaryFolder folder_{test::memory_folder()};
};

const CropOptions kSmall{.global_size = 32, .local_size = 16, .local_crops = 3, .patch_size = 4};

TEST(ImageBatches, OfEvaluationsAreMiddleCropsWithTheirLabels) {
  const ImageFolder folder(5);
  const auto split = folder.open();
  const auto source = images_of(split, 16);
  EXPECT_EQ(source->samples(), 5);
  const Batch batch = collated(*source, {4, 0, 2});
  EXPECT_EQ(batch.at("pixels").sizes(), (std::vector<std::int64_t>{3, 3, 16, 16}));
  EXPECT_TRUE(at::equal(batch.at("pixels")[0], middle_crop(split->image(4), 16)));
  EXPECT_TRUE(at::equal(batch.at("pixels")[2], middle_crop(split->image(2), 16)));
  EXPECT_EQ(numbers_of(batch.at("labels")), (Numbers{0, -1, 1}));
  EXPECT_EQ(batch.weight, 3);
}

TEST(ImageBatches, OfCropsHaveAllFirstViewsBeforeAllSecondOnes) {
  const ImageFolder folder(6);
  const auto split = folder.open();
  const auto source = image_crops(split, kSmall);
  const Numbers samples{5, 0, 3, 1, 2};
  const Batch batch = collated(*source, samples);
  constexpr std::int64_t kPatches = 64;
  EXPECT_EQ(batch.at("global_crops").sizes(), (std::vector<std::int64_t>{10, 3, 32, 32}));
  EXPECT_EQ(batch.at("local_crops").sizes(), (std::vector<std::int64_t>{15, 3, 16, 16}));
  EXPECT_EQ(batch.at("masks").sizes(), (std::vector<std::int64_t>{10, kPatches}));
  for (std::int64_t i = 0; i < 5; ++i) {
    const auto sample = samples[static_cast<std::size_t>(i)];
    const Crops alone = crops_of(split->image(sample), kSmall, sample_draw(1, 0, sample));
    for (std::int64_t view = 0; view < 2; ++view) {
      EXPECT_TRUE(at::equal(batch.at("global_crops")[5 * view + i], alone.global[view]));
      EXPECT_TRUE(at::equal(batch.at("masks")[5 * view + i], alone.masks[view]));
    }
    for (std::int64_t view = 0; view < 3; ++view) {
      EXPECT_TRUE(at::equal(batch.at("local_crops")[5 * view + i], alone.local[view]));
    }
  }
  const at::Tensor masks = batch.at("masks");
  EXPECT_EQ(numbers_of(batch.at("masked")), numbers_of(at::nonzero(masks.flatten())));
  // Each crop with masks weighs 1 in all.
  const at::Tensor weights = at::zeros({10 * kPatches}).index_put({batch.at("masked")}, batch.at("mask_weight"));
  const at::Tensor is_masked = masks.any(1).to(at::kFloat);
  EXPECT_GT(is_masked.sum().item<float>(), 0);
  EXPECT_TRUE(at::allclose(weights.view({10, kPatches}).sum(1), is_masked));
  EXPECT_EQ(batch.weight, 5);
  EXPECT_EQ(batch.samples, 5);
}

TEST(ImageBatches, OfCropsAreEqualForEveryNumberOfThreadsAndNewInEachEpoch) {
  const ImageFolder folder(4);
  const auto source = image_crops(folder.open(), kSmall);
  Loader one(source, data::order::Order({.samples = 4, .shuffle = false}), 0, 1, {.threads = 0, .seed = 3});
  Loader four(source, data::order::Order({.samples = 4, .shuffle = false}), 0, 1,
              {.threads = 4, .ahead = 3, .seed = 3});
  std::vector<Batch> batches;
  for (int i = 0; i < 4; ++i) {
    batches.push_back(one.next(2));
    expect_equal(four.next(2), batches.back());
  }
  EXPECT_FALSE(at::equal(batches[0].at("global_crops"), batches[2].at("global_crops")));
}

TEST(ImageBatches, WithoutLocalCropsHaveNone) {
  const ImageFolder folder(2);
  const auto source =
      image_crops(folder.open(), {.global_size = 32, .local_size = 16, .local_crops = 0, .patch_size = 4});
  EXPECT_EQ(collated(*source, {0, 1}).at("local_crops").sizes(), (std::vector<std::int64_t>{0, 3, 16, 16}));
}

TEST(ImageBatches, RefuseOptionsOutOfRangeAndDataWithoutImages) {
  const ImageFolder folder(1), empty(0);
  EXPECT_THAT(message_of<base::UsageError>([&] { image_crops(folder.open(), {.global_size = 3}); }),
              HasSubstr("crops: global_size = 3"));
  EXPECT_THAT(message_of<base::UsageError>([&] { images_of(folder.open(), 0); }), HasSubstr("images of 0 pixels"));
  EXPECT_THAT(message_of<base::UsageError>([&] { image_crops(empty.open(), kSmall); }), HasSubstr("no image"));
  EXPECT_THAT(message_of<base::UsageError>([&] { images_of(empty.open(), 16); }), HasSubstr("no image"));
}

}  // namespace
}  // namespace worker
