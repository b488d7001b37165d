#pragma once

#include <optional>

#include "controller/store/store.h"

namespace test {

/// The store::Error that `work` throws; nullopt if it throws nothing.
template <typename Work>
std::optional<store::Error> error_of(Work work) {
  try {
    work();
  } catch (const store::Error& error) {
    return error;
  }
  return std::nullopt;
}

}  // namespace test
