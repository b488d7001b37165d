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
       "--sweep submits a job for each combination of values, all of them or none, and prints the sweep's name. Each\n"
       "job stands alone: one that fails does not fail the others. Values are 1e-4,3e-4 or 0..3 (0, 1, 2, 3). The\n"
       "last part of a key is enough where no other key ends in it, as with --set: seed for train.seed. Job 7 of\n"
       "\"tune\" is tune-0007. A checkpoint.folder gets a subfolder for each job, named by its settings. --wait waits\n"
       "for all jobs and returns 1 if one did not succeed.\n"
       "\n"
       "--print-script prints the script that muster would give sbatch; a sweep has one script for each array of "
       "jobs.\n"
       "--check asks Slurm whether it would take that script and when it would start it: exit code 5 if it would not.\n"
       "Neither submits anything.\n"
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
       "SLURM is Slurm's number of the newest attempt. A held job starts nothing until somebody releases it; a job "
       "that\n"
       "is running and held goes on, but has no next attempt until then. A queued job waits for Slurm: muster why "
       "tells\n"
       "what for. A terminal shows as much of the table as fits its width. A pipe gets all of it, unless COLUMNS is\n"
       "set. -w shows the newest jobs that fit on the screen.\n\n"
       "  muster list\n"
       "  muster list 7 9\n"
       "  muster list -w --state running --state waiting\n"
       "  muster list --sweep s12\n"
       "  muster list --json | jq '.[] | select(.state == \"failed\") | .id'",
       define_list},
      {"show", "Show jobs: why each is in its state, its attempts and ranks",
       "HEARD is the age of a rank's newest heartbeat. SLOW is there while a rank is: each of its last 50 steps took "
       "more\n"
       "than 1.2 times the median over all ranks; how many times, in the mean. With fewer than three ranks none is.\n\n"
       "  muster show 7\n"
       "  muster show 7 9\n"
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
       "Slurm's log: --slurm.\n"
       "Log files hold no times. With -f --timestamps the controller dates each line when it sees it come, a moment "
       "after\n"
       "it was written. Lines that were there before have \"-\".\n"
       "\n"
       "  muster logs 7 -f --rank 0\n"
       "  muster logs 7 --slurm\n"
       "  muster logs 7 -f --tail 10 --timestamps\n"
       "  muster logs 7 --attempt 1 --tail 50",
       define_logs},
      {"events", "Print the history of a job, or of all jobs",
       "Every change of a job is an event, and events are kept for ever: those of removed jobs, too. Without a job "
       "muster\n"
       "prints the events of all jobs.\n\n"
       "  muster events 7\n"
       "  muster events -f --json",
       define_events},
      {"metrics", "Print every number that a job reports, with step time and memory, by step",
       "A resumed job goes back to its checkpoint, so a step may come twice, the second time with a later attempt. "
       "Rows are\n"
       "sorted by attempt, then by step.\n\n"
       "  muster metrics 7 --csv > run.csv\n"
       "  muster metrics 7 --series validation/loss\n"
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
       "A failed job starts again from its last checkpoint, and may fail as often as at first. A job that succeeded\n"
       "or was cancelled never comes back (exit code 2): submit it again with muster submit --like. --sweep leaves "
       "such\n"
       "jobs alone.\n\n"
       "  muster requeue 7\n"
       "  muster requeue --sweep s12",
       define_requeue},
      {"hold", "Start no further attempt of jobs before they are released",
       "An attempt in Slurm's queue stays there and is held. An attempt that runs goes on. When it ends and the job "
       "would\n"
       "come back, the job waits for muster release.\n\n"
       "  muster hold 7 8\n"
       "  muster hold --sweep s12",
       define_hold},
      {"release", "Let held jobs start",
       "A job that is not held refuses (exit code 2).\n\n"
       "  muster release 7",
       define_release},
      {"limit", "Change a job's time limit",
       "The limit holds for the running attempt and for later ones. It counts from the start of the attempt, not from "
       "now.\n"
       "A limit that has passed already ends the attempt after a save, and the job comes back (requeue.max_timed_out). "
       "Slurm\n"
       "lets only its operators give a running job more time.\n\n"
       "  muster limit 7 4h\n"
       "  muster limit 7 none",
       define_limit},
      {"rm", "Remove jobs that have ended, with their logs and checkpoints",
       "A removed job is in no list any more. muster deletes its metrics, its logs and the checkpoints in musterd's "
       "data\n"
       "folder. A checkpoint.folder that the job file names elsewhere stays. The history stays, too: muster events 7. "
       "The\n"
       "number is not given again. A job that has not ended is refused (exit code 2), and so is one that an open job "
       "waits\n"
       "for or saves into. On a terminal muster asks before; elsewhere it does not.\n\n"
       "  muster rm 7 8\n"
       "  muster rm --sweep s12 --dry-run",
       define_rm},
      {"prune", "Remove your old jobs",
       "Removes your jobs that have ended, as muster rm does. With both --older-than and --keep-last a job goes that "
       "is old\n"
       "and not among the newest. A job that an open job needs stays.\n\n"
       "  muster prune --older-than 30d --dry-run\n"
       "  muster prune --keep-last 100 --state succeeded",
       define_prune},
      {"why", "Tell why a job is in its state, and what to do about it",
       "muster says it in one sentence. Of a job that Slurm has queued it also shows Slurm's own word, and the start "
       "that\n"
       "Slurm expects.\n\n"
       "  muster why 7\n"
       "  muster why 5 9\n"
       "  muster why 7 --json | jq -r .action",
       define_why},
      {"results", "Compare the jobs of a sweep by a metric, the best first",
       "Jobs are compared by their best validation loss as soon as one of them has reported one: every evaluation\n"
       "measures the same data. Series of the training itself, such as loss and tokens_per_s, are compared by the "
       "mean\n"
       "of the last 20 steps: the best single step is only the luckiest batch. The table's title, and ranked_by in "
       "JSON\n"
       "and CSV, say which. --metric takes any series that a job has reported; muster metrics shows them.\n"
       "Steps that a resumed attempt did again count once. Jobs that failed or were cancelled come last, whatever "
       "they\n"
       "reached. Whether small or large is good, the series says; where it does not, --best has to.\n\n"
       "  muster results\n"
       "  muster results --sweep s12 --metric loss --top 5\n"
       "  muster results --sweep s12 --csv > sweep.csv",
       define_results},
      {"partitions", "Show the partitions you may use, and their limits",
       "* marks the partition of jobs that name none. LIMITS are those that muster's admins have set; SLURM'S are "
       "Slurm's\n"
       "own. PREEMPTED is the time that a job there has to save when another job takes its place.\n\n"
       "  muster partitions\n"
       "  muster partitions --json | jq '.[] | select(.may_use) | .name'",
       define_partitions},
      {"nodes", "Show Slurm's nodes, and which of them muster leaves out",
       "A node that was lost under a job, or that failed its partition's health check, gets no rank for ten minutes. A "
       "node\n"
       "that failed a job's own health check gets no rank of that job.\n\n"
       "  muster nodes\n"
       "  muster nodes --json | jq '.[] | select(.excluded_until) | .name'",
       define_nodes},
      {"admin", "Rule partitions: who may use them, limits, defaults; who changed them",
       "Everybody who has the controller's token is an admin.\n\n"
       "  muster admin partition list\n"
       "  muster admin partition add main --default true --max-time 12h\n"
       "  muster admin audit",
       define_admin},
      {"dashboard", "Print the link that opens the dashboard",
       "The link logs in by itself: it holds the controller's token, so show it to nobody else. It stands on stdout,\n"
       "alone. Where the dashboard listens for its own machine only and you are elsewhere (over ssh, or with "
       "--address\n"
       "of another host), stderr names the ssh command to type on your own machine before you open the link.\n"
       "--open starts this machine's browser. It hands over a file that only you can read, not the link itself.\n"
       "\n"
       "  muster dashboard\n"
       "  muster dashboard --open",
       define_dashboard},
      {"doctor", "Check that everything needed is in place",
       "One line a check: ok, note (fine, but good to know) or bad with its remedy. Exit code 1 if anything is bad.",
       define_doctor},
      {"completion", "Print the completion script of a shell",
       "  source <(muster completion bash)                     # in ~/.bashrc\n"
       "  source <(muster completion zsh)                      # in ~/.zshrc, after compinit\n"
       "  muster completion fish > ~/.config/fish/completions/muster.fish",
       define_completion},
      {"help", "Explain a command",
       "The same as --help after the command.\n\n"
       "  muster help submit\n"
       "  muster help admin partition",
       define_help},
      {"version", "Print the version", "", define_version},
  };
  return table;
}

}  // namespace cli
