#pragma once

#include <filesystem>
#include <functional>

#include "muster/v1/rank_service.pb.h"

namespace ranks {

/// Reads what a rank wrote down while the controller was away (worker/rank/grpc_unsent_file.h), oldest first, until
/// `take` returns false. The rank may have been killed while it wrote: an end in the middle of a report is the end.
/// True if all was taken, and if there is no such file. Throws std::system_error, naming the file, if it can't be
/// read.
bool read_unsent(const std::filesystem::path& file,
                 const std::function<bool(const muster::v1::HeartbeatRequest&)>& take);

}  // namespace ranks
