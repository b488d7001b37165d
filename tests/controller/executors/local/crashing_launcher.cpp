#include <signal.h>

#include "controller/executors/local/local_executor.h"
#include "tests/controller/executors/local/script_request.h"

// crashing_launcher <root> <agent> <job> <script> <ranks> <step> <controller>: launches an attempt and kills itself at
// a step of launch(), or "returned" after it.
int main(int argc, char** argv) {
  if (argc != 8) return 2;
  const std::string crash_at = argv[6];
  const auto reach = [&](std::string_view step) {
    if (step == crash_at) ::raise(SIGKILL);
  };
  const auto executor = executors::local::make_local_executor({argv[1], argv[2], reach});
  executor->start([](core::JobId, const core::EventBody&) {});
  const auto request = test::script_request(argv[1], std::stoll(argv[3]), argv[4], std::stoul(argv[5]), argv[7]);
  executor->launcher(request).launch(request);
  reach("returned");
  return 0;
}
