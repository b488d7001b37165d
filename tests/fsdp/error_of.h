#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>

/// The message of what `work` throws, without LibTorch's backtrace; "no error" if it throws nothing.
template <typename Work>
std::string error_of(const Work& work) {
  try {
    work();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}
