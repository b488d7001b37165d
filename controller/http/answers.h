#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/whole_number.h"
#include "controller/common/outcome.h"
#include "controller/http/message.h"
#include "proto/json/proto_json.h"

namespace http {

/// Thrown for a parameter or a body with a bad value. The answer is then 400.
struct BadParameter {
  std::string error;
  std::string remedy;
};

Response as_json(const nlohmann::ordered_json& json, unsigned status = 200);
Response refusal(const common::Refusal& refusal);

template <typename Message>
Response outcome(const common::Outcome<Message>& message, unsigned status = 200) {
  return message.ok() ? as_json(proto::to_json(message.value()), status) : refusal(message.refusal());
}

/// A page of rows. `more`: the page is full, so there may be further rows.
template <typename Message>
Response rows_page(const char* name, const std::vector<Message>& rows, std::uint32_t limit) {
  nlohmann::ordered_json out = {{name, nlohmann::ordered_json::array()}, {"more", limit > 0 && rows.size() == limit}};
  for (const auto& row : rows) out[name].push_back(proto::to_json(row));
  return as_json(out);
}

/// The parameter as a number; `otherwise` if it is absent.
template <typename Number>
Number number(const Request& request, const std::string& name, Number otherwise,
              std::uint64_t most = std::numeric_limits<Number>::max()) {
  const std::string& text = request.parameter(name);
  if (text.empty()) return otherwise;
  const auto value = base::whole_number<std::uint64_t>(text);
  if (!value || *value > most)
    throw BadParameter{name + "=" + text.substr(0, 80) + " is not a number from 0 to " + std::to_string(most),
                       "correct the parameter " + name};
  return static_cast<Number>(*value);
}

/// The body as a JSON object; an empty body is an empty object.
nlohmann::ordered_json body_of(const Request& request);

}  // namespace http
