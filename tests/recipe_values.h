#pragma once

#include <concepts>
#include <string>

#include "muster/v1/job.pb.h"

namespace test {

/// A recipe's value by the name of its key, "train.steps"; the zero of its type where it has none.
inline std::int64_t whole(const muster::v1::JobSpec& spec, const std::string& key) {
  const auto found = spec.recipe().values().find(key);
  return found == spec.recipe().values().end() ? 0 : found->second.whole();
}
inline double real(const muster::v1::JobSpec& spec, const std::string& key) {
  const auto found = spec.recipe().values().find(key);
  return found == spec.recipe().values().end() ? 0 : found->second.real();
}
inline bool flag(const muster::v1::JobSpec& spec, const std::string& key) {
  const auto found = spec.recipe().values().find(key);
  return found != spec.recipe().values().end() && found->second.flag();
}
inline std::string text(const muster::v1::JobSpec& spec, const std::string& key) {
  const auto found = spec.recipe().values().find(key);
  return found == spec.recipe().values().end() ? "" : found->second.text();
}
inline bool has(const muster::v1::JobSpec& spec, const std::string& key) {
  return spec.recipe().values().contains(key);
}

template <class Type>
void put(muster::v1::JobSpec& spec, const std::string& key, const Type& value) {
  auto& out = (*spec.mutable_recipe()->mutable_values())[key];
  if constexpr (std::same_as<Type, bool>) {
    out.set_flag(value);
  } else if constexpr (std::integral<Type>) {
    out.set_whole(static_cast<std::int64_t>(value));
  } else if constexpr (std::floating_point<Type>) {
    out.set_real(value);
  } else {
    out.set_text(value);
  }
}

}  // namespace test
