#pragma once
#include <exception>
#include <string>

namespace fsdp {

/// The text of an error without LibTorch's stack trace.
std::string text_of(const std::exception& error);

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
