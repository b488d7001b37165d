#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/prepare/images/source.h"

namespace data::prepare {

/// Generated images for tests and examples.
struct GeneratedOptions {
  int size = 48;               // pixels a side, 8 to 1,024
  std::int64_t count = 4'096;  // images, 1 to 100,000,000
  std::uint64_t seed = 0;
};

/// "circle", "crescent", "cross", "frame", "ring", "square", "star", "triangle".
std::vector<std::string> shape_labels();

/// Image `index` of the shapes: its label is index % 8. The shape tells the class. Place, size, turn, colors,
/// background and noise are random and do not (scene.h). A pure function of options.size, options.seed and index. About
/// 1 ms for 48 pixels.
Picture draw_shape(const GeneratedOptions& options, std::int64_t index);

/// options.count such images. Throws std::runtime_error naming an option outside its range.
ImageSource open_shapes(const GeneratedOptions& options);

/// A source of generated images: checks the options, numbers the parts, and calls `draw` for each index.
ImageSource open_generated(const std::string& kind, const GeneratedOptions& options, std::vector<std::string> labels,
                           Picture (*draw)(const GeneratedOptions&, std::int64_t));

}  // namespace data::prepare
