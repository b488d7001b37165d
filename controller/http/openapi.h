#pragma once

#include <string_view>

namespace http {

/// docs/openapi.json, as this program was built with it.
std::string_view openapi_text();

}  // namespace http
