#pragma once

#include <string>
#include <string_view>

#include "core/event.h"

namespace runtime {

/// What a job's log says of a node on which a health check failed, before the node's name.
inline constexpr std::string_view kUnfitMark = "muster: the health check failed on ";

/// The same check, which also writes into the job's log on which node it failed.
std::string telling_check(const std::string& check);
/// A check that is the job file's own, with its failure told so: others are not kept from the node.
std::string own_check(const std::string& check);
/// Whether a node was found unfit by nobody but its job.
bool is_own_finding(const core::NodeLost& lost);

}  // namespace runtime
