#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "data/prepare/images/decode_image.h"
#include "data/prepare/images/image_source.h"

namespace data::prepare {

/// The image files of a folder, in a fixed order.
struct ImageFolder {
  struct Entry {
    std::filesystem::path file;
    std::int32_t label;  // -1: the folder has no classes
  };
  std::vector<std::string> labels;  // names of the class folders, sorted by bytes
  std::vector<Entry> entries;       // by label, then by path
  std::string fingerprint;          // a hash of relative paths, sizes and times of change
  std::int64_t other_files = 0;     // files that are no images by their names, and those beside class folders
  std::filesystem::path other_example;
};

/// Lists a folder whose subfolders are the classes, as torchvision's ImageFolder does: FOLDER/cat/1.jpg has the label
/// "cat". The image files of a class may lie in folders of any depth below it. A folder without subfolders gives images
/// without labels. Hidden files and folders are left out, links are followed. Files are images by the ending of their
/// name (has_picture_name()); they are not opened.
///
/// Throws std::runtime_error naming the path and the remedy: a folder that does not exist or cannot be read, a class
/// without images, a link that leads nowhere or to a folder above it, more than 20,000,000 files, more than 32 levels.
///
/// `on_damaged`: called with the error of an entry that cannot be looked at, such as a link that leads nowhere; the
/// entry is then left out. Empty: such an entry is an error.
ImageFolder list_image_folder(const std::filesystem::path& folder,
                              const std::function<void(const std::string& error)>& on_damaged = {});

struct ImageFolderOptions {
  std::filesystem::path folder = {};
  int shorter_side = 256;  // images are shrunk to it; shrink()
  DecodeLimits limits = {};
  /// Called with the error of an image that cannot be read, whatever is wrong with it; the image is then left out.
  /// Several threads may call it. Empty: such an image is an error.
  std::function<void(const std::string& error)> on_damaged = {};
};

/// The images of list_image_folder() as a source of parts. Throws as list_image_folder() does.
ImageSource open_image_folder(const ImageFolderOptions& options);

}  // namespace data::prepare
