#include "agent/report/connect.h"

#include <optional>

#include "agent/rank/grpc/grpc_reporter.h"

namespace agent::report {

Connect connect_by_grpc(const std::map<std::string, std::string>& environment, pid_t pid) {
  return [environment, pid] {
    const auto rank = rank::read_environment([&](const char* name) -> std::optional<std::string> {
      const auto found = environment.find(name);
      return found == environment.end() ? std::nullopt : std::optional(found->second);
    });
    return rank::make_grpc_reporter(rank, {.for_another = true, .pid = pid});
  };
}

}  // namespace agent::report
