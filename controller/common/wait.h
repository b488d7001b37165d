#pragma once

#include <optional>
#include <string>

#include "base/room.h"
#include "controller/core/types.h"

namespace common {

/// Why something does not start, and what to do about it: the one vocabulary of `muster why`.
struct Wait {
  std::string why;                                 // one sentence
  std::string action;                              // empty: nothing
  std::optional<core::Time> until = std::nullopt;  // when this wait ends, where that is known
  bool operator==(const Wait&) const = default;
};

/// The advice for whatever ends without anybody's help.
inline constexpr const char* kStartsByItself = "It starts by itself.";

/// What people can do meanwhile about a write that failed so.
inline const char* make_room(int error) {
  return base::lacks_descriptors(error) ? "Raise musterd's limit of open files (LimitNOFILE, ulimit -n), or wait until "
                                          "other jobs have ended: it starts by itself."
                                        : "Make room there: it starts by itself.";
}

}  // namespace common
