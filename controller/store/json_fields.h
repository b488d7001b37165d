#pragma once

#include <boost/describe.hpp>
#include <boost/mp11.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>

#include "core/job.h"
#include "schema/utf8.h"

// BOOST_DESCRIBE_STRUCT lists the stored members of a type once, for writing and reading. Their names are stored for
// ever. The name of a time or of a duration ends in "_ms". A reader ignores unknown names and keeps the default of
// missing ones, so a member may be added at any time.

namespace store {

template <typename T>
inline constexpr bool is_time = std::is_same_v<T, core::Millis> || std::is_same_v<T, core::Time>;

/// Calls each(name, member) for every stored member of `value`.
template <typename T, typename Each>
void for_each_field(T& value, Each each) {
  using Members = boost::describe::describe_members<std::remove_const_t<T>, boost::describe::mod_public>;
  boost::mp11::mp_for_each<Members>([&](auto field) {
    auto& member = value.*field.pointer;
    constexpr bool in_ms = is_time<std::remove_cvref_t<decltype(member)>>;
    each(std::string(field.name) + (in_ms ? "_ms" : ""), member);
  });
}

template <typename T>
nlohmann::ordered_json to_stored(const T& value) {
  if constexpr (std::is_same_v<T, core::Time>) {
    return to_stored(value.time_since_epoch());
  } else if constexpr (std::is_same_v<T, core::Millis>) {
    return value.count();
  } else if constexpr (std::is_enum_v<T>) {
    return to_string(value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return schema::valid_utf8(value);
  } else if constexpr (std::is_arithmetic_v<T>) {
    return value;
  } else if constexpr (requires { value.has_value(); }) {
    return value ? to_stored(*value) : nlohmann::ordered_json();
  } else if constexpr (requires { typename T::value_type; }) {
    auto list = nlohmann::ordered_json::array();
    for (const auto& entry : value) list.push_back(to_stored(entry));
    return list;
  } else {
    auto json = nlohmann::ordered_json::object();
    for_each_field(value, [&](const std::string& name, const auto& member) { json[name] = to_stored(member); });
    return json;
  }
}

// A newer muster may know further words. The reason tells more about a cause.
inline void from_word(std::string_view word, core::Cause& cause) {
  cause = core::cause_from_string(word).value_or(core::Cause::kFailed);
}
inline void from_word(std::string_view word, core::JobState& state) {
  state = core::job_state_from_string(word).value_or(core::JobState::kPending);
}
inline void from_word(std::string_view word, core::DependsOn& on) {
  on = core::depends_on_from_string(word).value_or(core::DependsOn::kSucceeded);
}

/// Throws nlohmann::json::exception if the value, or one in it, has the wrong type.
template <typename T>
void from_stored(const nlohmann::json& json, T& value) {
  if constexpr (is_time<T>) {
    value = T(core::Millis(json.get<std::int64_t>()));
  } else if constexpr (std::is_enum_v<T>) {
    from_word(json.get_ref<const std::string&>(), value);
  } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
    value = json.get<T>();
  } else if constexpr (requires { value.has_value(); }) {
    if (!json.is_null()) from_stored(json, value.emplace());
  } else if constexpr (requires { typename T::value_type; }) {
    for (const auto& entry : json.get_ref<const nlohmann::json::array_t&>()) from_stored(entry, value.emplace_back());
  } else {
    const auto& fields = json.get_ref<const nlohmann::json::object_t&>();
    for_each_field(value, [&](const std::string& name, auto& member) {
      if (const auto found = fields.find(name); found != fields.end()) from_stored(found->second, member);
    });
  }
}

/// The alternative of the variant that has this name, with default members; null: none has it.
template <typename Variant>
const Variant* blank_of(std::string_view name, std::string_view (*name_of)(const Variant&)) {
  static const auto blanks = [&] {
    std::map<std::string_view, Variant> all;
    boost::mp11::mp_for_each<boost::mp11::mp_iota_c<std::variant_size_v<Variant>>>([&](auto index) {
      const Variant blank(std::in_place_index<index>);
      all.emplace(name_of(blank), blank);
    });
    return all;
  }();
  const auto found = blanks.find(name);
  return found == blanks.end() ? nullptr : &found->second;
}

}  // namespace store
