#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tests/temporary_folder.h"

namespace worker::testing {

using test::read_file;
using test::TemporaryFolder;
using test::write_file;

/// The message of the Error that `action` throws. Fails the test and returns "" when it throws none.
template <class Error, class Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace worker::testing
