#pragma once

#include "data/prepare/images/image_source.h"

namespace data::prepare {

/// The picture with other sides, as Pillow's Image.resize makes it with BICUBIC: each pixel is a weighted mean of the
/// pixels that it covers and of their neighbours (Catmull-Rom, stretched where the picture becomes smaller), first
/// along rows and then along columns, with both results rounded to 8 bits. transformers resizes images so. Pillow 13
/// goes along columns first where that is less work, which moves some values by one. The arithmetic of pixels is in
/// whole numbers, so equal pictures give equal bytes. Sides are 1 to kMostSide; others throw std::invalid_argument. A
/// picture that has these sides already is returned as it is.
Picture resize_bicubic(const Picture& picture, int height, int width);

}  // namespace data::prepare
