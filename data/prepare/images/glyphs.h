#pragma once

#include "data/prepare/images/shapes.h"

namespace data::prepare {

/// "0" to "9", then "A" to "Z".
std::vector<std::string> glyph_labels();

/// Image `index` of the glyphs: its label is index % 36, a digit or a capital letter of 5 x 7 dots. What else differs
/// is that of draw_shape(), but the turn is small, because a 6 must not become a 9. About 1 ms for 48 pixels.
Picture draw_glyph(const GeneratedOptions& options, std::int64_t index);

/// options.count such images. Throws std::runtime_error naming an option outside its range.
ImageSource open_glyphs(const GeneratedOptions& options);

}  // namespace data::prepare
