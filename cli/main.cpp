#include "cli/cli_command.h"
#include "muster_version.h"

int main(int argc, char** argv) {
  return cli::run_program(argc, argv, MUSTER_VERSION_TEXT);
}
