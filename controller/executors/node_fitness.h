#pragma once

#include <string>
#include <string_view>

namespace executors {

/// What a job's log says of a node on which a health check failed, before the node's name.
inline constexpr std::string_view kUnfitMark = "muster: the health check failed on ";

/// And what it says after the name where the check is the job file's own.
inline constexpr std::string_view kOwnCheckMark = " (of this job alone)";

/// The same check, which also writes into the job's log on which node it failed.
std::string telling_check(const std::string& check);
/// A check that is the job file's own, with its failure told so: others are not kept from the node.
std::string own_check(const std::string& check);

}  // namespace executors
