#pragma once

#include <SQLiteCpp/Exception.h>

#include <string>

#include "store/store.h"

namespace store {

/// Turns an error of SQLite about the database `file` into a message with a remedy. `system_error` is the errno that
/// SQLite saw; 0: unknown.
Error translate(const SQLite::Exception& error, int system_error, const std::string& file);

/// The error for a damaged file.
Error corrupt(const std::string& file, const std::string& detail);

}  // namespace store
