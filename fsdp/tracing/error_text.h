#pragma once
#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace fsdp {

/// The text of an error without LibTorch's stack trace.
inline std::string text_of(const std::exception& error) {
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  return c10_error != nullptr ? c10_error->what_without_backtrace() : error.what();
}

/// Runs `work` and returns the text of its failure, or an empty text for success.
template <typename Work>
std::string failure_of(const Work& work) {
  try {
    work();
    return {};
  } catch (const std::exception& error) {
    const std::string text = text_of(error);
    return text.empty() ? "unknown failure" : text;
  }
}

}  // namespace fsdp
