#pragma once

#include <span>
#include <string_view>

namespace data::prepare {

/// Sixty packages of six sections as Debian control paragraphs, written for this project: for machines without package
/// lists.
std::string_view fixture_packages();

/// Twenty manual pages as roff, written for this project: for machines without manual pages.
std::span<const std::string_view> fixture_pages();

/// The texts of data/prepare/text/fixture/documents in the order of their file names, as they were when this program
/// was built.
std::span<const std::string_view> fixture_documents();

}  // namespace data::prepare
