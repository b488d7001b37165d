#include "fsdp/tracing/error_text.h"

#include <c10/util/Exception.h>

namespace fsdp {

std::string text_of(const std::exception& error) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  return c10_error != nullptr ? c10_error->what_without_backtrace() : error.what();
}

}  // namespace fsdp
