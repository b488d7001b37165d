#pragma once

#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

#include "tests/worker/batch_folders.h"
#include "tests/worker/temporary_folder.h"

namespace worker::testing {

/// Images whose left or right half is bright.
class ImageFolder {
 public:
  explicit ImageFolder(bool with_classes = true) {
    data::format::Description description;
    description.kind = data::format::Kind::kImages;
    description.source = description.made_by = "a test";
    if (with_classes) description.labels = {"left", "right"};
    description.fields = {"image"};
    for (const auto& [split, count] : {std::pair{"train", 48}, {"validation", 16}}) {
      data::format::Writer writer(folder_ / data::format::file_name(split, 0), data::format::Kind::kImages, 0, {});
      for (int i = 0; i < count; ++i) writer.add(image(i), with_classes ? i % 2 : -1);
      description.splits[split].files = {writer.finish()};
    }
    data::format::write_description(folder_.path(), description);
  }
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  data::format::Image image(int number) {
    bytes_.assign(20 * 20 * 3, static_cast<std::uint8_t>(60 + number % 50));
    for (int y = 0; y < 20; ++y) {
      for (int x = 0; x < 10; ++x) {
        for (int c = 0; c < 3; ++c)
          bytes_[static_cast<std::size_t>((y * 20 + x + number % 2 * 10) * 3 + c)] =
              static_cast<std::uint8_t>(150 + (number * 17 + y * 5 + c * 30) % 100);
      }
    }
    return {bytes_, 20, 20};
  }

  const TemporaryFolder folder_;
  std::vector<std::uint8_t> bytes_;
};

}  // namespace worker::testing
