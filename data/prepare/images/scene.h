#pragma once

#include <cstdint>

#include "data/prepare/images/picture.h"
#include "data/prepare/images/random.h"

namespace data::prepare {

/// The half side of the square in which an outline is described: from -kUnit to kUnit, y downwards.
inline constexpr int kUnit = 1'024;

/// Whether a point belongs to the outline of this class. Pure.
using Outline = bool (*)(int label, int x, int y);

/// How much the outline may turn.
enum class Turn : std::uint8_t { kAnyWay, kLittle };  // 90 degrees to either side, about 18 degrees

/// Draws one outline of a class in a square picture of `size` pixels. What does not tell the class is random: place,
/// size, turn, both colors, the kind of background (plain, gradient, stripes or checks) and noise. Edges are smooth: 16
/// points a pixel. Whole numbers only, so equal arguments give equal bytes on every machine.
Picture draw_scene(Outline outline, int label, Turn turn, int size, Random random);

}  // namespace data::prepare
