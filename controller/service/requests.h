#pragma once

#include <string>
#include <vector>

#include "base/outcome.h"
#include "core/types.h"
#include "muster/v1/job.pb.h"
#include "store/store.h"

namespace service {

/// What the requests of people have in common.

inline constexpr std::uint32_t kListMost = 1000;
inline constexpr int kMostSweep = 10000;

base::Refusal refuse(base::Refusal::Kind kind, std::string text);
/// At most 64 bytes, valid UTF-8; "unknown" if the caller named no user.
std::string user_or_unknown(const std::string& user);
/// Notes which element of its sweep a job is. The sweep gets its name when it is stored.
void name_in_sweep(muster::v1::JobSpec& spec, int index, std::uint32_t parallel);
/// The jobs of a sweep that are not removed, in the order of their ids.
std::vector<core::JobId> jobs_of(store::Store& store, const std::string& sweep);

}  // namespace service
