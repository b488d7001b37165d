#pragma once

#include "data/prepare/images/shapes.h"

namespace data::prepare {

/// "bricks", "checks", "columns", "dots", "grid", "rings", "rows", "waves".
std::vector<std::string> texture_labels();

/// Image `index` of the textures: its label is index % 8. The pattern fills the image and tells the class. Its place,
/// its period, both colors and noise are random and do not tell it. So any part of an image shows its class, while
/// single pixels tell little. A pure function of options.size, options.seed and index.
Picture draw_texture(const GeneratedOptions& options, std::int64_t index);

/// options.count such images. Throws std::runtime_error naming an option outside its range.
ImageSource open_textures(const GeneratedOptions& options);

}  // namespace data::prepare
