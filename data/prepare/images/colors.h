#pragma once

#include <array>

#include "data/prepare/images/random.h"

namespace data::prepare {

/// Red, green and blue, each 0 to 255.
using Color = std::array<int, 3>;

Color draw_color(Random& random);

/// A color that can be told from `other`.
Color draw_unlike(const Color& other, Random& random);

}  // namespace data::prepare
