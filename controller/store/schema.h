#pragma once

#include <span>
#include <string_view>

namespace store {

/// The SQL of every migration: number n (from 1) brings a database of version n - 1 to version n.
std::span<const std::string_view> migrations();

}  // namespace store
