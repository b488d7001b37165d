#include "cli/command.h"

namespace cli {

void define_admin(CLI::App& app, Session& session) {
  app.require_subcommand(1);
  define_admin_partition(add_below(app, "partition", "Set which Slurm partitions may be used, by whom and how",
                                   "  muster admin partition add --help     every key"),
                         session);
  define_admin_audit(
      add_below(app, "audit", "Show who changed which partition when",
                "A change made by musterd's --partitions file has the user \"file\". Changes are kept for ever.\n\n"
                "  muster admin audit\n"
                "  muster admin audit --partition big --json | jq '.[0].before'"),
      session);
}

}  // namespace cli
