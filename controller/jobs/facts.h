#pragma once

#include <string>

#include "core/apply.h"

namespace jobs {

/// What the event log must know of a fact before it becomes an event. Pure.

/// The rank, node, step or other job that a fact is about. Two facts of one kind with two subjects are two facts.
std::string subject_of(const core::EventBody& body);

/// True if the job's history holds the fact already. An executor tells a new controller what it told the one before.
bool known_already(const core::Job& job, const core::EventBody& body);

/// True if the fact belongs to an attempt whose launch is not recorded yet. A rank may end before its launch is
/// recorded.
bool too_early(const core::Job& job, const core::EventBody& body);

}  // namespace jobs
