// Goal: a picture is seen as the model's own processor shows it, and a preprocessor_config.json that asks for something
// else is refused. tests/peers/infer_test.py compares the pixels with transformers.
#include "worker/infer/image_input.h"

#include <gmock/gmock.h>

#include "base/usage_error.h"
#include "spec/tables/dinov2_keys.h"
#include "tests/temporary_folder.h"
#include "worker/models/dinov2/dinov2_model.h"
#include "worker/models/family.h"

namespace infer {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ImageViews : public ::testing::Test {
 protected:
  ImageViews() {
    source_.folder = folder_.path();
    source_.family = &worker::dinov2_family();
    source_.values = worker::dinov2_family().read(fsdp::Json::parse(R"({"image_size": 56})"));
  }

  /// The error about a file with one member more, or "56 of 64".
  std::string seen(const std::string& member) {
    ::test::write_file(folder_ / worker::kPreprocessorFile,
                       R"({"size": {"shortest_edge": 64}, "crop_size": {"height": 56, "width": 56})" + member + "}");
    try {
      const ImageView view = image_view(source_);
      return std::to_string(view.side) + " of " + std::to_string(view.shortest_edge);
    } catch (const base::UsageError& error) {
      return error.what();
    }
  }

  std::string usual(const char* name) const { return worker::dinov2_preprocessor(source_.values).at(name).dump(); }

  ::test::TemporaryFolder folder_;
  Source source_;
};

TEST_F(ImageViews, ReadWhatTransformersWrites) {
  EXPECT_EQ(seen(""), "56 of 64");
  EXPECT_EQ(seen(R"(,"image_processor_type": "BitImageProcessorFast", "do_convert_rgb": true, "resample": 3,
                     "rescale_factor": 0.00392156862745098, "do_resize": true, "data_format": "channels_first",
                     "input_data_format": null, "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225])"),
            "56 of 64");
  ::test::write_file(folder_ / worker::kPreprocessorFile, R"({"size": 64, "crop_size": 56})");
  EXPECT_EQ(image_view(source_).shortest_edge, 64) << "as old files have it";
  std::filesystem::remove(folder_ / worker::kPreprocessorFile);
  EXPECT_EQ(image_view(source_).shortest_edge, 64) << "as an export has it";
}

TEST_F(ImageViews, AMemberThatIsAbsentIsThatOfBitImageProcessor) {
  const auto view_of = [this](const char* text) {
    ::test::write_file(folder_ / worker::kPreprocessorFile, text);
    return image_view(source_);
  };
  for (const char* text : {"{}", R"({"image_processor_type": "BitImageProcessor"})",
                           R"({"image_processor_type": null, "do_convert_rgb": null, "do_pad": null})"}) {
    const ImageView view = view_of(text);
    EXPECT_EQ(view.shortest_edge, 224) << text;
    EXPECT_EQ(view.side, 224) << text;
    EXPECT_THAT(view.mean, ElementsAre(0.48145466, 0.4578275, 0.40821073)) << text;
    EXPECT_THAT(view.deviation, ElementsAre(0.26862954, 0.26130258, 0.27577711)) << text;
  }
  const ImageView view = view_of(R"({"image_mean": [0.5, 0, -1], "image_std": 0.5, "size": {"shortest_edge": 256}})");
  EXPECT_THAT(view.mean, ElementsAre(0.5, 0, -1));
  EXPECT_THAT(view.deviation, ElementsAre(0.5, 0.5, 0.5));
  EXPECT_EQ(view.side, 224);
  std::filesystem::remove(folder_ / worker::kPreprocessorFile);
  EXPECT_EQ(image_view(source_).mean, spec::kImageNetMean) << "as an export has it";
}

TEST_F(ImageViews, RefuseEveryOtherMemberByName) {
  EXPECT_THAT(seen(R"(,"resample": 2)"), AllOf(HasSubstr("preprocessor_config.json: resample = 2; want 3")));
  EXPECT_THAT(seen(R"(,"do_resize": false)"), HasSubstr("do_resize = false; want true"));
  for (const char* name : {"do_resize", "do_center_crop", "do_rescale", "do_normalize"}) {
    EXPECT_THAT(seen(std::string(",\"") + name + "\": null"),
                HasSubstr(std::string(name) + " = null; want true; null is false for transformers"));
  }
  for (const char* name : {"resample", "rescale_factor"}) {
    EXPECT_THAT(seen(std::string(",\"") + name + "\": null"),
                HasSubstr(std::string(name) + " = null; want " + usual(name) + "; transformers refuses null"));
  }
  for (const char* name : {"image_mean", "image_std"}) {
    EXPECT_THAT(
        seen(std::string(",\"") + name + "\": null"),
        HasSubstr(std::string(name) + " = null; write the value, or remove the member: transformers 5 refuses"));
  }
  EXPECT_THAT(seen(R"(,"image_mean": [0.5, 0.5])"), HasSubstr("image_mean = [0.5,0.5]; want a number for each of red"));
  EXPECT_THAT(seen(R"(,"image_std": [0.5, 0, 0.5])"), HasSubstr("image_std = [0.5,0,0.5]; want a number"));
  EXPECT_THAT(seen(R"(,"image_processor_type": "ViTImageProcessor")"),
              HasSubstr("image_processor_type = \"ViTImageProcessor\"; want \"BitImageProcessor\""));
  EXPECT_THAT(seen(R"(,"feature_extractor_type": "ViTFeatureExtractor")"),
              HasSubstr("feature_extractor_type = \"ViTFeatureExtractor\"; want \"BitImageProcessor\""));
  EXPECT_EQ(seen(R"(,"feature_extractor_type": "ViTFeatureExtractor", "image_processor_type": "BitImageProcessor")"),
            "56 of 64");
  EXPECT_THAT(seen(R"(,"do_pad": true)"), HasSubstr("do_pad = true; want false"));
  EXPECT_THAT(seen(R"(,"default_to_square": true)"), HasSubstr("default_to_square = true; want false"));
  EXPECT_THAT(seen(R"(,"data_format": "channels_last")"), HasSubstr("want \"channels_first\""));
  EXPECT_THAT(
      seen(R"(,"crop_pct": 0.9)"),
      HasSubstr("crop_pct = 0.9; this program does not know whether that changes the picture; remove the member"));
}

TEST_F(ImageViews, RefuseSizesOfAnotherForm) {
  const auto error_of = [this](const std::string& text) -> std::string {
    ::test::write_file(folder_ / worker::kPreprocessorFile, text);
    try {
      image_view(source_);
    } catch (const base::UsageError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(error_of(R"({"crop_size": null})"), HasSubstr("crop_size = null; write the value"));
  EXPECT_THAT(error_of(R"({"size": null})"), HasSubstr("size = null; write the value"));
  for (const char* size : {R"({"height":256,"width":256})", R"({"longest_edge":300,"shortest_edge":256})", "[256,256]",
                           "0", "256.5", R"({"shortest_edge":20000})", R"({"shortest_edge":null})"}) {
    EXPECT_THAT(error_of(std::string(R"({"size": )") + size + "}"),
                HasSubstr(std::string("size = ") + size + "; want {\"shortest_edge\": N}"));
  }
  EXPECT_EQ(error_of(R"({"size": {"shortest_edge": 256, "longest_edge": null}})"), "accepted");
  for (const char* size : {R"({"shortest_edge":224})", R"({"height":224,"width":192})", "257"}) {
    EXPECT_THAT(error_of(std::string(R"({"size": 256, "crop_size": )") + size + "}"),
                HasSubstr(std::string("crop_size = ") + size +
                          "; want {\"height\": N, \"width\": N}, and N from 1 to size's shortest_edge = 256"));
  }
}

TEST_F(ImageViews, AProcessorOfAnotherFileIsReadOrMustBeEqual) {
  ::test::write_file(folder_ / "processor_config.json", R"({"image_processor": {"size": 250, "crop_size": 240}})");
  EXPECT_EQ(image_view(source_).side, 240);
  EXPECT_THAT(seen(""), HasSubstr("processor_config.json: image_processor differs from preprocessor_config.json"));
  ::test::write_file(folder_ / "processor_config.json", R"({"image_processor": {"do_resize": false}})");
  std::filesystem::remove(folder_ / worker::kPreprocessorFile);
  EXPECT_THROW(image_view(source_), base::UsageError);
  ::test::write_file(folder_ / "processor_config.json", R"({"processor_class": "Other"})");
  EXPECT_EQ(seen(""), "56 of 64");
}

/// A picture whose pixels are their column and row.
data::prepare::Picture squares(int height, int width) {
  data::prepare::Picture out{height, width, {}};
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      out.rgb.insert(out.rgb.end(), {static_cast<std::uint8_t>(x), static_cast<std::uint8_t>(y), 7});
  return out;
}

TEST(Viewed, WholePixelsAreCutOutOfTheMiddle) {
  const auto seen = viewed(squares(4, 9), {.shortest_edge = 4, .side = 2});
  EXPECT_EQ(seen.height, 2);
  // The square has 3 of 9 columns before it, and 1 of 4 rows.
  EXPECT_THAT(seen.rgb, ElementsAre(3, 1, 7, 4, 1, 7, 3, 2, 7, 4, 2, 7));
}

TEST(Viewed, TheLongerSideIsRoundedDown) {
  EXPECT_EQ(viewed(squares(30, 20), {.shortest_edge = 7, .side = 7}).width, 7);  // 10.5 rows
  EXPECT_EQ(viewed(squares(2, 3), {.shortest_edge = 8, .side = 8}).height, 8) << "made larger";
  EXPECT_THROW(viewed(squares(1, 200), {.shortest_edge = 100, .side = 100}), std::runtime_error);
}

}  // namespace
}  // namespace infer
