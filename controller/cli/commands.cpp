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
       "--sweep submits a job for each combination of values, all of them or none, and prints the sweep's name. Each "
       "is a\n"
       "job of its own: one that fails does not fail the others. Values are 1e-4,3e-4 or 0..3 (0, 1, 2, 3); of a key "
       "its\n"
       "last part is enough where no other key ends so, and so it is with --set. Job 7 of \"tune\" is tune-0007. A\n"
       "checkpoint.folder gets a\n"
       "subfolder for each job, named by its settings. --wait then waits for all: 1 if one did not succeed.\n"
       "\n"
       "--print-script and --check submit nothing: the script as sbatch would get it next (of a sweep one for each\n"
       "array), and Slurm's word whether and when it would start; exit code 5 if Slurm would refuse it.\n"
       "\n"
       "--env NAME gives the ranks a variable as it is set here, --env NAME=VALUE another value; both are as in "
       "[env].\n"
       "What follows -- is added to the job file's command. --like 7 takes job 7's settings in the place of a job "
       "file,\n"
       "with the environment that job 7 was submitted with; --set environment=submit takes yours. muster spec 7 "
       "prints\n"
       "these settings as a job file.\n"
       "\n"
       "executor = \"debug\" runs the job's ranks right here, without a controller. Rank 0 has this terminal; what "
       "the\n"
       "others write follows on stderr. The exit code is that of the first rank that failed. There is no requeue and\n"
       "no time limit, and its files are in a temporary folder, which is removed at the end.\n"
       "\n"
       "  muster submit job.toml\n"
       "  muster submit --follow job.toml --set train.steps=50 --set data.source=fixture\n"
       "  id=$(muster submit job.toml) && muster wait $id --timeout 12h\n"
       "  muster submit --after $id --after failed:13 evaluate.toml\n"
       "  muster submit --sweep train.learning_rate=1e-4,3e-4 --sweep seed=0..3 --parallel 2 job.toml\n"
       "  muster submit job.toml --env WANDB_API_KEY -- --lr 3e-4\n"
       "  muster submit --like 7 --set train.steps=5000\n"
       "  muster submit --executor debug job.toml",
       define_submit},
      {"list", "List jobs, newest first",
       "SLURM is Slurm's own number of the newest attempt. held: a person must release it (running, held: before its\n"
       "next attempt). A queued job is Slurm's to start; muster why tells what it waits for. On a terminal the table "
       "is\n"
       "cut to its width; in a pipe nothing is, unless COLUMNS says so.\n\n"
       "  muster list\n"
       "  muster list -w --state running --state waiting\n"
       "  muster list --sweep s12\n"
       "  muster list --json | jq '.[] | select(.state == \"failed\") | .id'",
       define_list},
      {"show", "Show one job: why it is in its state, its attempts and ranks",
       "HEARD is the age of a rank's newest heartbeat.\n\n"
       "  muster show 7\n"
       "  muster show 7 --json | jq .reason",
       define_show},
      {"spec", "Print a job's settings as a job file",
       "Submitted again it makes the same job, with the environment of the first one's submitter ([submitted_env]).\n"
       "Without that table the new submitter's is taken. Keys that have their default are left out. Secrets among its\n"
       "variables are hidden, as in muster show; a job file with such a hidden value is refused.\n\n"
       "  muster spec 7 > job.toml\n"
       "  diff <(muster spec 7) <(muster spec 9)",
       define_spec},
      {"logs", "Print what a job's ranks wrote",
       "Lines of several ranks begin with [rank N]. -f waits for the job to start, goes on with its next attempts and\n"
       "ends with the job. Earlier attempts keep their logs: --attempt. What failed before any rank started stands in\n"
       "Slurm's log: --slurm.\n\n"
       "  muster logs 7 -f --rank 0\n"
       "  muster logs 7 --slurm\n"
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
      {"cancel", "Cancel jobs: their ranks save, leave, and they never come back",
       "Ranks get resources.stop_grace (30s) to save and leave, then they are killed. The last checkpoint stays.\n"
       "Cancelling again while they leave is fine; an ended job cannot be cancelled (exit code 2). Of several jobs "
       "each\n"
       "is asked by itself; of a sweep, those that have not ended.\n\n"
       "  muster cancel 7\n"
       "  muster cancel --sweep s12",
       define_cancel},
      {"requeue", "End the running attempt after a save and start the next one",
       "A failed job starts again from its last checkpoint, with all budgets refilled. A succeeded or cancelled one\n"
       "cannot come back (exit code 2): submit it again, with muster submit --like. Of a sweep, those are left "
       "alone.\n\n"
       "  muster requeue 7\n"
       "  muster requeue --sweep s12",
       define_requeue},
      {"hold", "Start no further attempt of jobs before they are released",
       "A queued attempt stays in the queue, held. One that runs goes on; if it ends and would come back, the job "
       "waits.\n\n"
       "  muster hold 7 8\n"
       "  muster hold --sweep s12",
       define_hold},
      {"release", "Let held jobs start",
       "A job that is not held refuses (exit code 2).\n\n"
       "  muster release 7",
       define_release},
      {"limit", "Change a job's time limit",
       "For the running attempt and those to come: from the attempt's start, not from now. A limit that has passed\n"
       "already ends the attempt after a save, and the job comes back (requeue.max_timed_out). Slurm lets only its\n"
       "operators lengthen what already runs.\n\n"
       "  muster limit 7 4h\n"
       "  muster limit 7 none",
       define_limit},
      {"why", "Tell why a job is in its state, and what to do about it",
       "In one sentence, with Slurm's own word and the start it expects where there are such.\n\n"
       "  muster why 7\n"
       "  muster why 7 --json | jq -r .action",
       define_why},
      {"results", "Compare the jobs of a sweep by a metric, the best first",
       "BEST is the best step of the run as it went in the end: steps that a resumed attempt did again count once. "
       "Jobs\n"
       "that failed or were cancelled come last, whatever they reached. Small is good, but for tokens_per_s.\n\n"
       "  muster results\n"
       "  muster results --sweep s12 --metric validation_loss --top 5\n"
       "  muster results --sweep s12 --csv > sweep.csv",
       define_results},
      {"partitions", "Show the partitions you may use, and their limits",
       "* marks the one for jobs that name none. NODES are Slurm's; LIMITS are the admins', SLURM'S its own. "
       "PREEMPTED: "
       "what\n"
       "a job there keeps to save when another one takes its place.\n\n"
       "  muster partitions\n"
       "  muster partitions --json | jq '.[] | select(.may_use) | .name'",
       define_partitions},
      {"nodes", "Show Slurm's nodes, and which of them muster leaves out",
       "A node that was lost under a job, or that failed its partition's health check, gets no rank for ten minutes. "
       "One\n"
       "that failed a job's own check gets none of that job's.\n\n"
       "  muster nodes\n"
       "  muster nodes --json | jq '.[] | select(.excluded_until) | .name'",
       define_nodes},
      {"admin", "Rule partitions: who may use them, limits, defaults; who changed them",
       "Whoever holds the controller's token is an admin.\n\n"
       "  muster admin partition list\n"
       "  muster admin partition add main --default true --max-time 12h\n"
       "  muster admin audit",
       define_admin},
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
