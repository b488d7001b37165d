// A rank that registers and then waits for ever, as one in a collective with dead peers does.
#include <unistd.h>

#include "agent/grpc/grpc_reporter.h"
#include "agent/rank/environment.h"

int main() {
  const auto reporter = worker::make_grpc_reporter(worker::read_environment());
  reporter->section(worker::Section::kStep);
  while (true) ::pause();
}
