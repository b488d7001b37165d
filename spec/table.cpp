#include "spec/table.h"

#include <algorithm>

namespace spec {

const Value* Values::find(std::string_view name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : &found->second;
}

bool awaits_config(const Table& table, const Values& values) {
  const bool is_family = std::ranges::find(table.keys, kPretrained, &Key::name) != table.keys.end();
  if (!is_family || values.text(kPretrained).empty()) return false;
  return std::ranges::any_of(table.keys,
                             [&](const Key& key) { return !key.standard.empty() && !values.has(key.name); });
}

void fill_defaults(Values& values, std::span<const Table* const> tables, std::uint64_t ranks) {
  for (const auto* table : tables) {
    if (awaits_config(*table, values)) continue;
    for (const auto& key : table->keys) {
      if (!key.standard.empty() && !values.has(key.name)) values.set(key.name, parse(key, key.standard).value());
    }
  }
  for (const auto* table : tables) {
    if (table->derive != nullptr && !awaits_config(*table, values)) table->derive(values, ranks);
  }
}

std::string multiples_near(std::int64_t value, std::int64_t unit) {
  const auto below = value / unit * unit;
  return "try " + (below > 0 ? std::to_string(below) + " or " : "") + std::to_string(below + unit);
}

}  // namespace spec
