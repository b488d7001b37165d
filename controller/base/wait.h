#pragma once

#include <optional>
#include <string>

#include "core/types.h"

namespace base {

/// Why something does not start, and what to do about it: the one vocabulary of `muster why`.
struct Wait {
  std::string why;                                 // one sentence
  std::string action;                              // empty: nothing
  std::optional<core::Time> until = std::nullopt;  // when this wait ends, where that is known
  bool operator==(const Wait&) const = default;
};

/// The advice for whatever ends without anybody's help.
inline constexpr const char* kStartsByItself = "It starts by itself.";

}  // namespace base
