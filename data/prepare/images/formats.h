#pragma once

#include <string>
#include <string_view>

#include "data/prepare/images/decode.h"

// One decoder a format, for decode.cpp alone.
namespace data::prepare::formats {

/// Throws std::runtime_error "NAME: finding".
[[noreturn]] void refuse(const std::string& name, const std::string& finding);

/// Refuses sides that are not within 1 to kMostSide, and more pixels than `limits` allow. Call it before memory is
/// taken for the pixels.
void check_size(const std::string& name, std::int64_t width, std::int64_t height, const DecodeLimits& limits);

/// A picture of these sides, all bytes zero.
Picture empty_picture(int height, int width);

Picture decode_jpeg(std::string_view bytes, const std::string& name, const DecodeLimits& limits);
Picture decode_png(std::string_view bytes, const std::string& name, const DecodeLimits& limits);
Picture decode_pnm(std::string_view bytes, const std::string& name, const DecodeLimits& limits);

}  // namespace data::prepare::formats
