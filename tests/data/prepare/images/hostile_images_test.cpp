// Goal: a damaged or hostile image never crashes the program, and its error names the file.
// Method: each file cut at every 64th byte and near its end, and with bits flipped at places of a fixed seed.
#include <gmock/gmock.h>

#include <random>

#include "tests/data/prepare/image_files.h"

namespace data::prepare {
namespace {

using ::testing::StartsWith;

constexpr DecodeLimits kSmall{.pixels = 1 << 16, .file_bytes = 1 << 20};

struct File {
  std::string name, bytes;
};

std::vector<File> files() {
  Picture noise = smooth_picture(40, 60);
  std::mt19937 random(7);
  for (auto& value : noise.rgb) value = static_cast<std::uint8_t>(value ^ (random() & 31));
  const auto palette = png_chunk("PLTE", text_of(Bytes(3 * 256, 77)));
  std::string ascii = "P3 9 9 255";
  for (int i = 0; i < 243; ++i) ascii += " " + std::to_string(noise.rgb[static_cast<std::size_t>(i)]);
  return {{"a.jpg", jpeg_file(60, 40, noise.rgb, TJPF_RGB, TJSAMP_420)},
          {"progressive.jpg", jpeg_file(60, 40, noise.rgb, TJPF_RGB, TJSAMP_444, TJFLAG_PROGRESSIVE)},
          {"inks.jpg", jpeg_file(45, 40, noise.rgb, TJPF_CMYK, TJSAMP_444)},
          {"a.png", png_file(60, 40, kPngRgb, 8, rows_of(noise))},
          {"deep.png", png_file(30, 40, kPngRgb, 16, rows_of(noise))},
          {"palette.png", png_file(180, 40, kPngPalette, 8, rows_of(noise), palette)},
          {"a.ppm", ppm_file(noise)},
          {"ascii.ppm", ascii}};
}

TEST(HostileImages, AFileThatIsCutIsNamed) {
  for (const auto& file : files()) {
    ASSERT_EQ(refusal(file.bytes, file.name, kSmall), "decoded") << file.name;
    std::vector<std::size_t> cuts;
    for (std::size_t cut = 0; cut < file.bytes.size(); cut += 64) cuts.push_back(cut);
    // The last digit of a text may be missing unseen, if it is not the only one of its number.
    for (std::size_t left = 4; left < 16; ++left) cuts.push_back(file.bytes.size() - left);
    for (const auto cut : cuts) {
      EXPECT_THAT(refusal(std::string_view(file.bytes).substr(0, cut), file.name, kSmall), StartsWith(file.name + ": "))
          << "cut at " << cut << " of " << file.bytes.size();
    }
  }
}

TEST(HostileImages, FlippedBitsGiveAnErrorOrAPictureWithinTheLimits) {
  std::mt19937 random(11);
  for (const auto& file : files()) {
    int refused = 0;
    for (int round = 0; round < 300; ++round) {
      auto bytes = file.bytes;
      // Half of the damage goes to the first 100 bytes, where sizes and formats are.
      for (int flips = 1 + static_cast<int>(random() % 3); flips > 0; --flips) {
        const auto within = random() % 2 == 0 ? std::min<std::size_t>(100, bytes.size()) : bytes.size();
        bytes[random() % within] ^= static_cast<char>(1 << (random() % 8));
      }
      try {
        const auto picture = decode(bytes, file.name, kSmall);
        EXPECT_LE(std::int64_t{picture.width} * picture.height, kSmall.pixels);
        EXPECT_EQ(picture.rgb.size(), std::size_t{3} * static_cast<std::size_t>(picture.width * picture.height));
      } catch (const std::runtime_error& error) {
        EXPECT_THAT(error.what(), StartsWith(file.name + ": "));
        ++refused;
      }
    }
    EXPECT_GT(refused, 30) << file.name;
  }
}

TEST(HostileImages, AnotherFormatsBytesBehindAMarkAreRefused) {
  std::mt19937 random(13);
  for (const std::string mark : {"\xff\xd8\xff", "\x89PNG\r\n\x1a\n", "P6 9 9 255 ", "P3 ", "P5 "}) {
    for (int round = 0; round < 50; ++round) {
      std::string bytes = mark;
      for (std::size_t i = random() % 200; i > 0; --i) bytes += static_cast<char>(random());
      EXPECT_THAT(refusal(bytes, "noise", kSmall), StartsWith("noise: "));
    }
  }
}

}  // namespace
}  // namespace data::prepare
