#pragma once

#include <SQLiteCpp/Exception.h>

#include <string>

#include "store/store.h"

namespace store {

/// SQLite's complaint about the database `file` in muster's words, with what to do. `system_error` is errno as SQLite
/// saw it; 0 if unknown.
Error translate(const SQLite::Exception& error, int system_error, const std::string& file);

/// The message for a damaged file.
Error corrupt(const std::string& file, const std::string& detail);

}  // namespace store
