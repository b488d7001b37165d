#pragma once

#include <span>
#include <string_view>

namespace worker {

/// The texts of worker/data/fixture in the order of their file names, as they were when this program was built.
std::span<const std::string_view> fixture_documents();

}  // namespace worker
