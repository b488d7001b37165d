#include <vector>

#include "cli/command.h"

namespace cli {

std::span<const Command> commands() {
  static const std::vector<Command> table{
      {"submit", "Submit a job file",
       "Checks the whole file first: nothing is stored unless all of it is right. The job is safe once the id is\n"
       "printed (on stdout, alone; everything else goes to stderr). If the controller does not answer, muster asks\n"
       "again for 20 s; a lost answer never makes a second job.\n"
       "--wait and --follow return the job's result: 0 succeeded, 1 failed or cancelled. Ctrl-C leaves the job alone.\n"
       "\n"
       "  muster submit job.toml\n"
       "  muster submit --follow job.toml --set train.steps=50 --set data.source=fixture\n"
       "  id=$(muster submit job.toml) && muster wait $id --timeout 12h",
       define_submit},
      {"list", "List jobs, newest first",
       "  muster list\n"
       "  muster list -w --state running --state waiting\n"
       "  muster list --json | jq '.[] | select(.state == \"failed\") | .id'",
       define_list},
      {"show", "Show one job: why it is in its state, its attempts and ranks",
       "HEARD is the age of a rank's newest heartbeat.\n\n"
       "  muster show 7\n"
       "  muster show 7 --json | jq .reason",
       define_show},
      {"logs", "Print what a job's ranks wrote",
       "Lines of several ranks begin with [rank N]. -f waits for the job to start, goes on with its next attempts and\n"
       "ends with the job. Earlier attempts keep their logs: --attempt.\n\n"
       "  muster logs 7 -f --rank 0\n"
       "  muster logs 7 --attempt 1 --tail 50",
       define_logs},
      {"events", "Print the history of a job, or of all jobs",
       "Without a job: of all of them.\n\n"
       "  muster events 7\n"
       "  muster events -f --json",
       define_events},
      {"metrics", "Print loss, throughput and memory by step",
       "A resumed job rewinds: the same step comes again with a later attempt. Rows are in the order of (attempt, "
       "step).\n\n"
       "  muster metrics 7 --csv > run.csv\n"
       "  muster metrics 7 -f --json | jq .loss",
       define_metrics},
      {"wait", "Wait until a job has ended, and return its result",
       "Exit code 0: succeeded; 1: failed or cancelled; 124: --timeout passed; the job goes on then. Losing contact "
       "with\n"
       "the controller is no result: muster says so once and waits on.\n\n"
       "  muster wait 7 --timeout 12h",
       define_wait},
      {"cancel", "Cancel a job: its ranks save, leave, and it never comes back",
       "Ranks get resources.stop_grace (30s) to save and leave, then they are killed. The last checkpoint stays.\n"
       "Cancelling again while they leave is fine; an ended job cannot be cancelled (exit code 2).\n\n"
       "  muster cancel 7",
       define_cancel},
      {"requeue", "End the running attempt after a save and start the next one",
       "A failed job starts again from its last checkpoint, with all budgets refilled. A succeeded or cancelled one\n"
       "cannot come back (exit code 2): submit it again.\n\n"
       "  muster requeue 7",
       define_requeue},
      {"doctor", "Check that everything needed is in place",
       "One line a check: ok, note (fine, but good to know) or bad with its remedy. Exit code 1 if anything is bad.",
       define_doctor},
      {"completion", "Print the completion script of a shell",
       "  source <(muster completion bash)                     # in ~/.bashrc\n"
       "  source <(muster completion zsh)                      # in ~/.zshrc, after compinit\n"
       "  muster completion fish > ~/.config/fish/completions/muster.fish",
       define_completion},
      {"version", "Print the version", "", define_version},
  };
  return table;
}

}  // namespace cli
