#pragma once

#include "cli/command.h"

namespace cli {

// The commands below `muster admin`. Each file defines the commands of one subject.

void define_admin_partition(CLI::App& app, Session& session);  // admin_partition.cpp
void define_admin_audit(CLI::App& app, Session& session);      // admin_audit.cpp

/// Adds a command below another one, with its own help.
CLI::App& add_below(CLI::App& app, const std::string& name, const std::string& summary, const std::string& prose);

}  // namespace cli
