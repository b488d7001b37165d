#pragma once

#include <span>
#include <string_view>

namespace worker {

/// The texts of worker/data/fixture, by file name, as they were when this program was built.
std::span<const std::string_view> fixture_documents();

}  // namespace worker
