#include "agent/program/prepare.h"

#include <cstdio>
#include <stdexcept>

#include "agent/protocol/files.h"
#include "agent/protocol/launch.h"
#include "agent/watch/agent_files.h"
#include "base/durable_file.h"

namespace agent::program {
namespace {

constexpr unsigned kOwnersOnly = 0600;

}  // namespace

void prepare_element(const std::filesystem::path& set_file, std::uint32_t index,
                     const std::filesystem::path& attempt_folder) {
  const auto set_folder = set_file.parent_path();
  const auto launch = protocol::launch_of_set(set_folder / protocol::kSetLaunchFile, index);
  // Where the log is, before anything that may fail.
  base::make_private_folder(attempt_folder);
  base::write_file_durably(attempt_folder / protocol::kElementFile, protocol::to_text({set_folder.string(), index}));
  switch (watch::make_start(watch::start_of(launch, attempt_folder))) {
    case watch::Fencing::kRaised:
      break;
    case watch::Fencing::kRaisedAgain:
      std::fprintf(stderr, "muster-agent: a rank of an older attempt holds %s; it was fenced all the same\n",
                   launch.fence_folder.c_str());
      break;
    case watch::Fencing::kOver:
      throw std::runtime_error("its attempt is over already: a later one has " + launch.fence_folder);
  }
  base::write_file_durably(attempt_folder / protocol::kLaunchFile, protocol::to_text(launch), kOwnersOnly);
}

}  // namespace agent::program
