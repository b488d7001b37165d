#pragma once

#include <span>
#include <string_view>

namespace prepare {

/// Sixty packages of six sections as Debian control paragraphs, written for this project: for machines without package
/// lists.
std::string_view fixture_packages();

/// Twenty manual pages as roff, written for this project: for machines without manual pages.
std::span<const std::string_view> fixture_pages();

}  // namespace prepare
