#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace data::prepare {

/// A decoded image: RGB of 8 bits, rows from the top, without padding.
struct Picture {
  int height = 0;
  int width = 0;
  std::vector<std::uint8_t> rgb;  // [height, width, 3]

  bool operator==(const Picture&) const = default;
};

/// The picture made smaller so that its shorter side is `shorter_side` pixels. The longer side keeps the proportion,
/// rounded to the nearest pixel. A picture whose shorter side is not longer than that is returned as it is.
///
/// Each pixel is the mean of the area that it covers, so fine patterns do not alias. The arithmetic is in whole
/// numbers: equal pictures give equal bytes on every machine. Sides are at most kMostSide. Throws std::invalid_argument
/// if `shorter_side` is below 1.
Picture shrink(Picture picture, int shorter_side);

/// The longest side of a picture, in pixels.
inline constexpr int kMostSide = 16'384;

/// Images in one part of a source.
inline constexpr std::int64_t kImagesAPart = 4'096;

/// Receives an image and the number of its label, -1 if it has none.
using ImageSink = std::function<void(const Picture& picture, std::int32_t label)>;

/// Images in numbered parts. A part is always the same images in the same order.
struct ImageSource {
  std::string description;          ///< kind, options and, for files, a fingerprint; equal ones mean equal images
  std::vector<std::string> labels;  ///< names of the labels by number; empty: no image has one
  std::int64_t images = 0;
  std::int64_t parts = 0;
  /// Passes the images of part 0 to parts - 1 to the sink. Several threads may read. Throws std::runtime_error naming
  /// the file, and std::out_of_range for another part.
  std::function<void(std::int64_t part, const ImageSink& sink)> read;
};

/// A source of so many images, in parts: `tell` passes the image of this number, from 0, to the sink. No images are an
/// empty part, and not no part.
ImageSource in_parts(std::string description, std::vector<std::string> labels, std::int64_t images,
                     std::function<void(std::int64_t number, const ImageSink& sink)> tell);

/// The picture with other sides, as Pillow's Image.resize makes it with BICUBIC: each pixel is a weighted mean of the
/// pixels that it covers and of their neighbours (Catmull-Rom, stretched where the picture becomes smaller), first
/// along rows and then along columns, with both results rounded to 8 bits. transformers resizes images so. Pillow 13
/// goes along columns first where that is less work, which moves some values by one. The arithmetic of pixels is in
/// whole numbers, so equal pictures give equal bytes. Sides are 1 to kMostSide; others throw std::invalid_argument. A
/// picture that has these sides already is returned as it is.
Picture resize_bicubic(const Picture& picture, int height, int width);

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
  /// Called with the error of an image that cannot be read, whatever is wrong with it; the image is then left out.
  /// Several threads may call it. Empty: such an image is an error.
  std::function<void(const std::string& error)> on_damaged = {};
};

/// The images of list_image_folder() as a source of parts. Throws as list_image_folder() does.
ImageSource open_image_folder(const ImageFolderOptions& options);

/// Generated images for tests and examples.
struct GeneratedOptions {
  int size = 48;               // pixels a side, 8 to 1,024
  std::int64_t count = 4'096;  // images, 1 to 100,000,000
  std::uint64_t seed = 0;
};

/// kShapes: "circle", "crescent", "cross", "frame", "ring", "square", "star", "triangle". The shape tells the class.
/// What does not tell it is random: place, size, turn, both colors, the kind of background (plain, gradient, stripes
/// or checks) and noise. Edges are smooth.
/// kGlyphs: "0" to "9", then "A" to "Z": a digit or a capital letter of 5 x 7 dots. What else differs is that of the
/// shapes, but the turn is small, because a 6 must not become a 9.
/// kTextures: "bricks", "checks", "columns", "dots", "grid", "rings", "rows", "waves". The pattern fills the image and
/// tells the class. Its place, its period, both colors and noise are random and do not tell it. So any part of an image
/// shows its class, while single pixels tell little.
enum class Painted : std::uint8_t { kShapes, kGlyphs, kTextures };

std::vector<std::string> labels_of(Painted kind);

/// Image `index`: its label is index modulo the number of labels. A pure function of `kind`, options.size, options.seed
/// and index, in whole numbers, so equal arguments give equal bytes on every machine. About 1 ms for 48 pixels.
Picture paint(Painted kind, const GeneratedOptions& options, std::int64_t index);

/// options.count such images. Throws std::runtime_error naming an option outside its range.
ImageSource open_painted(Painted kind, const GeneratedOptions& options);

}  // namespace data::prepare
