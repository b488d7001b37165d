#pragma once

#include <istream>
#include <string>
#include <vector>

#include "worker/infer/options.h"

namespace infer {

/// The most bytes that a file of texts may have.
inline constexpr std::size_t kMostTextBytes = std::size_t{256} << 20;

/// The texts of the options: arguments, a file or `in`. Without arguments and a file they come from `in`, unless that
/// is a terminal and `may_wait` is false. Lines end with \n or \r\n, and empty lines of a file are left out. Throws
/// base::UsageError when there are none, when a file cannot be read, or has more than kMostTextBytes.
std::vector<std::string> read_texts(const Options& options, std::istream& in, bool may_wait);

}  // namespace infer
