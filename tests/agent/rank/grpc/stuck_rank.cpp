// A rank that registers and then waits for ever, as one in a collective with dead peers does.
#include <unistd.h>

#include "agent/rank/environment.h"
#include "agent/rank/grpc/grpc_reporter.h"

int main() {
  const auto reporter = agent::rank::make_grpc_reporter(agent::rank::read_environment());
  reporter->section(agent::rank::Section::kStep);
  while (true) ::pause();
}
