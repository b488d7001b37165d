#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <vector>

#include "core/job.h"
#include "schema/utf8.h"

namespace store {

// `fields(archive, value)` lists the fields of a stored type once, for writing and reading. The names are stored for
// ever. A reader ignores unknown fields and keeps the default of missing ones, so a field may be added at any time.

template <typename Archive, typename Policy>
requires std::is_same_v<std::remove_const_t<Policy>, core::RequeuePolicy>
void fields(Archive& archive, Policy& policy) {
  archive("max_failed", policy.max_failed);
  archive("max_rank_silent", policy.max_rank_silent);
  archive("max_rank_hung", policy.max_rank_hung);
  archive("max_preempted", policy.max_preempted);
  archive("max_timed_out", policy.max_timed_out);
  archive("max_node_failed", policy.max_node_failed);
  archive("max_out_of_memory", policy.max_out_of_memory);
  archive("max_controller_lost", policy.max_controller_lost);
  archive("max_same_error", policy.max_same_error);
  archive("backoff_initial_ms", policy.backoff_initial);
  archive("backoff_max_ms", policy.backoff_max);
  archive("healthy_after_ms", policy.healthy_after);
}

template <typename Archive, typename Status>
requires std::is_same_v<std::remove_const_t<Status>, core::ExitStatus>
void fields(Archive& archive, Status& status) {
  archive("code", status.code);
  archive("signal", status.signal);
}

template <typename Archive, typename D>
requires std::is_same_v<std::remove_const_t<D>, core::Dependency>
void fields(Archive& archive, D& dependency) {
  archive("job", dependency.job);
  archive("on", dependency.on);
}

template <typename Archive, typename J>
requires std::is_same_v<std::remove_const_t<J>, core::SchedulerJob>
void fields(Archive& archive, J& job) {
  archive("number", job.number);
  archive("element", job.element);
}

template <typename Archive, typename S>
requires std::is_same_v<std::remove_const_t<S>, core::SweepElement>
void fields(Archive& archive, S& element) {
  archive("sweep", element.sweep);
  archive("index", element.index);
  archive("parallel", element.parallel);
}

/// Types that are stored as plain JSON arrays.
template <typename T>
inline constexpr bool is_plain_list =
    std::is_same_v<T, std::vector<std::int64_t>> || std::is_same_v<T, std::vector<std::string>>;

template <typename T>
inline constexpr bool is_optional = requires(T value) {
  value.has_value();
};

class JsonWriter {
 public:
  template <typename T>
  void operator()(const char* name, const T& value) {
    if constexpr (std::is_same_v<T, core::Millis>) {
      json_[name] = value.count();
    } else if constexpr (std::is_same_v<T, core::Time>) {
      json_[name] = value.time_since_epoch().count();
    } else if constexpr (std::is_same_v<T, core::Cause> || std::is_same_v<T, core::JobState> ||
                         std::is_same_v<T, core::DependsOn>) {
      json_[name] = to_string(value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      json_[name] = schema::valid_utf8(value);
    } else if constexpr (std::is_arithmetic_v<T> || is_plain_list<T>) {
      json_[name] = value;
    } else if constexpr (is_optional<T>) {
      json_[name] = nullptr;
      if (value) (*this)(name, *value);
    } else if constexpr (requires { typename T::value_type; }) {
      auto list = nlohmann::ordered_json::array();
      for (const auto& entry : value) {
        JsonWriter inner;
        fields(inner, entry);
        list.push_back(std::move(inner.json_));
      }
      json_[name] = std::move(list);
    } else {
      JsonWriter inner;
      fields(inner, value);
      json_[name] = std::move(inner.json_);
    }
  }
  std::string text() const { return json_.dump(); }

 private:
  nlohmann::ordered_json json_ = nlohmann::ordered_json::object();
};

/// Throws nlohmann::json::exception if a field has the wrong type.
class JsonReader {
 public:
  explicit JsonReader(const nlohmann::json& json) : json_(json) {
    static_cast<void>(json.get_ref<const nlohmann::json::object_t&>());  // throws for anything but an object
  }
  template <typename T>
  void operator()(const char* name, T& value) {
    const auto found = json_.find(name);
    if (found == json_.end()) return;
    if constexpr (std::is_same_v<T, core::Millis>) {
      value = core::Millis{found->template get<std::int64_t>()};
    } else if constexpr (std::is_same_v<T, core::Time>) {
      value = core::Time{core::Millis{found->template get<std::int64_t>()}};
    } else if constexpr (std::is_same_v<T, core::Cause>) {
      // A newer muster may know further causes. The reason tells more.
      value = core::cause_from_string(found->template get<std::string>()).value_or(core::Cause::kFailed);
    } else if constexpr (std::is_same_v<T, core::JobState>) {
      value = core::job_state_from_string(found->template get<std::string>()).value_or(core::JobState::kPending);
    } else if constexpr (std::is_same_v<T, core::DependsOn>) {
      value = core::depends_on_from_string(found->template get<std::string>()).value_or(core::DependsOn::kSucceeded);
    } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string> || is_plain_list<T>) {
      value = found->template get<T>();
    } else if constexpr (is_optional<T>) {
      if (!found->is_null()) (*this)(name, value.emplace());
    } else if constexpr (requires { typename T::value_type; }) {
      for (const auto& entry : *found) {
        JsonReader inner(entry);
        fields(inner, value.emplace_back());
      }
    } else {
      JsonReader inner(*found);
      fields(inner, value);
    }
  }

 private:
  const nlohmann::json& json_;
};

}  // namespace store
