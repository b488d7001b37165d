// Goal: a folder of images becomes labels and pictures in an order that depends on names alone; what is wrong is named.
#include "data/prepare/images/image_source.h"

#include <gmock/gmock.h>

#include "tests/data/prepare/image_files.h"
#include "tests/temporary_folder.h"

namespace data::prepare {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class ImageFolders : public ::testing::Test {
 protected:
  /// A gray picture of one pixel whose value tells which it is.
  void add(const std::string& name, int value) {
    test::write_file(folder_ / name, "P2 1 1 255 " + std::to_string(value) + "\n");
  }

  std::string refusal_of(const fs::path& path) {
    try {
      list_image_folder(path);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "listed";
  }

  std::vector<std::pair<int, int>> values(const ImageFolderOptions& options) {
    std::vector<std::pair<int, int>> out;
    open_image_folder(options).read(
        0, [&](const Picture& picture, std::int32_t label) { out.emplace_back(picture.rgb[0], label); });
    return out;
  }

  test::TemporaryFolder folder_;
};

TEST_F(ImageFolders, ClassesAreSortedFoldersAndImagesSortedFiles) {
  add("dog/b.pgm", 4);
  add("dog/a.PGM", 3);
  add("cat/2/x.pgm", 2);
  add("cat/1.pgm", 1);
  add("cat/.hidden.pgm", 99);
  add("cat/notes.txt", 99);
  add("beside.pgm", 99);
  const auto listed = list_image_folder(folder_.path());
  EXPECT_THAT(listed.labels, ElementsAre("cat", "dog"));
  EXPECT_EQ(listed.other_files, 2);
  EXPECT_EQ(listed.other_example, folder_ / "beside.pgm");
  EXPECT_THAT(values({folder_.path()}),
              ElementsAre(std::pair(1, 0), std::pair(2, 0), std::pair(3, 1), std::pair(4, 1)));
}

TEST_F(ImageFolders, AFolderWithoutClassesGivesImagesWithoutLabels) {
  add("b.pgm", 2);
  add("a.pgm", 1);
  EXPECT_THAT(open_image_folder({folder_.path()}).labels, ElementsAre());
  EXPECT_THAT(values({folder_.path()}), ElementsAre(std::pair(1, -1), std::pair(2, -1)));
}

TEST_F(ImageFolders, PicturesAreShrunk) {
  test::write_file(folder_ / "a.ppm", ppm_file(smooth_picture(20, 30)));
  std::vector<int> sides;
  open_image_folder({folder_.path(), 10}).read(0, [&](const Picture& picture, std::int32_t) {
    sides = {picture.height, picture.width};
  });
  EXPECT_THAT(sides, ElementsAre(10, 15));
  EXPECT_THROW(open_image_folder({folder_.path(), 0}), std::runtime_error);
}

TEST_F(ImageFolders, AnotherFileGivesAnotherDescription) {
  add("cat/1.pgm", 1);
  const auto before = open_image_folder({folder_.path()}).description;
  EXPECT_EQ(open_image_folder({folder_.path()}).description, before);
  EXPECT_NE(open_image_folder({folder_.path(), 64}).description, before);
  add("cat/1.pgm", 100);
  EXPECT_NE(open_image_folder({folder_.path()}).description, before);
}

TEST_F(ImageFolders, LinksAreFollowedAndLoopsNamed) {
  add("cat/1.pgm", 1);
  add("other/dog/2.pgm", 2);
  fs::create_directory_symlink(folder_ / "other/dog", folder_ / "cat/more");
  EXPECT_EQ(list_image_folder(folder_.path()).entries.size(), 3U);
  fs::create_directory_symlink(folder_ / "cat", folder_ / "cat/z-loop");
  EXPECT_THAT(refusal_of(folder_.path()), StartsWith((folder_ / "cat/z-loop").native() +
                                                     ": is a link that leads back to " + (folder_ / "cat").native()));
  fs::remove(folder_ / "cat/z-loop");
  fs::create_symlink(folder_ / "none.pgm", folder_ / "cat/broken.pgm");
  EXPECT_THAT(refusal_of(folder_.path()), HasSubstr("cat/broken.pgm: is a link that leads nowhere"));
  fs::remove(folder_ / "cat/broken.pgm");
  fs::create_symlink("self.pgm", folder_ / "cat/self.pgm");
  EXPECT_THAT(refusal_of(folder_.path()), HasSubstr("cat/self.pgm: is a link that leads back to itself"));
}

TEST_F(ImageFolders, WhatHoldsNoImagesIsNamed) {
  EXPECT_THAT(refusal_of(folder_.path()), HasSubstr("holds no images"));
  EXPECT_THAT(refusal_of(folder_ / "none"), HasSubstr("none: is not a folder"));
  add("cat/1.pgm", 1);
  add("empty/notes.txt", 1);
  EXPECT_THAT(refusal_of(folder_.path()), StartsWith((folder_ / "empty").native() + ": holds no images"));
}

TEST_F(ImageFolders, ADamagedImageIsAnErrorOrToldAndLeftOut) {
  add("a.pgm", 1);
  test::write_file(folder_ / "b.png", "\x89PNG\r\n\x1a\nrest");
  add("c.pgm", 3);
  try {
    values({folder_.path()});
    FAIL() << "want an error";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), StartsWith((folder_ / "b.png").native() + ": is not a whole PNG"));
  }
  std::vector<std::string> told;
  const auto on_damaged = [&](const std::string& error) { told.push_back(error); };
  EXPECT_THAT(values({.folder = folder_.path(), .on_damaged = on_damaged}),
              ElementsAre(std::pair(1, -1), std::pair(3, -1)));
  EXPECT_THAT(told, ElementsAre(HasSubstr("b.png: is not a whole PNG")));
  told.clear();
  fs::create_symlink(folder_ / "gone.pgm", folder_ / "d.pgm");
  EXPECT_THROW(values({folder_.path()}), std::runtime_error);
  EXPECT_THAT(values({.folder = folder_.path(), .on_damaged = on_damaged}),
              ElementsAre(std::pair(1, -1), std::pair(3, -1)));
  EXPECT_THAT(told, ElementsAre(HasSubstr("d.pgm: is a link that leads nowhere"), HasSubstr("b.png: ")));
}

}  // namespace
}  // namespace data::prepare
