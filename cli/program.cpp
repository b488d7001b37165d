#include <pwd.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <vector>

#include "base/numbers.h"
#include "cli/cli_command.h"
#include "cli/other_programs.h"
#include "spec/jobfile/toml_value.h"

namespace cli {
namespace {

constexpr const char* kProse =
    "The address of the controller and the token come from the first of: the options; MUSTER_ADDRESS, "
    "MUSTER_TOKEN_FILE\n"
    "and MUSTER_TOKEN; MUSTER_DATA_FOLDER, with its musterd.json and token; in a rank the controller\n"
    "of its job; ./muster.toml, ~/.config/muster/config.toml and /etc/muster/config.toml (keys: address, token_file);\n"
    "musterd's usual data folder; 127.0.0.1:7600.\n\n"
    "Exit codes: 0 success; 1 the job failed or was cancelled; 2 wrong usage, job file or configuration, or the job's\n"
    "state does not allow it; 3 no such job or attempt; 4 controller unreachable, or it refuses the token; 5 a limit "
    "of the\n"
    "controller (a full disk, too) or the scheduler refused it; 124 wait timed out; 130 interrupted. --address and\n"
    "--token-file may also follow the command.\n\n"
    "  musterd &                              start a controller on this machine\n"
    "  muster doctor                          is everything in place?\n"
    "  muster submit --follow job.toml        train, and watch\n"
    "  muster submit --help                   every key of a job file";

int run_version(Session&, const JsonOption& options) {
  if (options.json) {
    print_json(with_version({{"version", MUSTER_VERSION}}));
  } else {
    std::cout << "muster " MUSTER_VERSION "\n";
  }
  return kSuccess;
}

int run_action(Session& session, const CLI::App& app) {
  const auto name = command_name(app);
  try {
    if (const auto problem = not_utf8(app); !problem.empty()) throw Failure(kUsage, problem);
    const int code = session.action();
    std::cout << std::flush;
    if (!std::cout) throw Failure(kUsage, "cannot write to standard output; is the disk full?");
    return code;
  } catch (const Failure& failure) {
    std::cout << std::flush;
    std::cerr << name << ": " << failure.what() << "\n";
    return failure.exit();
  } catch (const std::exception& error) {
    std::cerr << name << ": " << error.what() << "; this is a bug in muster, please report it\n";
    return kUsage;
  }
}

/// Moves the arguments after "--" into `out`. Returns the number of the others.
int take_arguments(int argc, char** argv, std::vector<std::string>& out) {
  const auto end = argv + argc;
  const auto dashes = std::find_if(argv, end, [](const char* word) { return std::string_view(word) == "--"; });
  if (dashes != end) out.assign(dashes + 1, end);
  return static_cast<int>(dashes - argv);
}

}  // namespace

const Config& Session::config() {
  if (!config_) config_ = load_config(flags, usual_places());
  return *config_;
}

Client& Session::client_unconnected() {
  if (!client_) client_ = std::make_unique<Client>(config());
  return *client_;
}

Client& Session::client() {
  client_unconnected().must_connect();
  return *client_;
}

CLI::App& add_below(CLI::App& app, const std::string& name, const std::string& summary, const std::string& prose) {
  auto* sub = app.add_subcommand(name, summary);
  sub->set_help_flag("-h,--help", "Print this help");
  sub->group("Commands");
  sub->footer(prose);
  return *sub;
}

CLI::Option* add_job(CLI::App& app, std::int64_t& job) {
  return app.add_option("job", job, "The job's number, as muster list shows it")
      ->required()
      ->check(whole_number(1, INT64_MAX))
      ->type_name("JOB");
}

CLI::Option* add_jobs(CLI::App& app, std::vector<std::int64_t>& jobs) {
  return app.add_option("jobs", jobs, "The jobs' numbers, as muster list shows them")
      ->check(whole_number(1, INT64_MAX))
      ->type_name("JOB");
}

std::chrono::milliseconds duration_of(const std::string& option, const std::string& text, const std::string& example) {
  if (const auto duration = base::parse_duration_ms(text)) return std::chrono::milliseconds(*duration);
  throw Failure(kUsage, option + " \"" + jobfile::shown(text) + "\": want a duration such as " + example);
}

std::string user_name() {
  if (const auto* entry = getpwuid(geteuid()); entry != nullptr) return entry->pw_name;
  return std::to_string(geteuid());
}

void define_version(CLI::App& app, Session& session) {
  auto options = add_action<JsonOption>(app, session, run_version);
  app.add_flag("--json", options->json, "As an object");
}

std::unique_ptr<CLI::App> make_app(Session& session) {
  auto app = std::make_unique<CLI::App>("muster submits, watches and requeues sharded training.", "muster");
  app->formatter(std::make_shared<HelpFormatter>());
  app->set_help_flag("-h,--help", "Print this help");
  app->set_version_flag("--version", "muster " MUSTER_VERSION, "Print the version");
  app->fallthrough();
  app->require_subcommand(1);
  app->footer(kProse);
  app->add_option("--address", session.flags.address, "The controller's address (default 127.0.0.1:7600)")
      ->type_name("HOST:PORT");
  app->add_option("--token-file", session.flags.token_file, "File with the controller's token")->type_name("FILE");
  for (const auto& command : commands()) {
    command.define(add_below(*app, command.name, command.summary, command.prose), session);
  }
  define_completion_words(*app->add_subcommand("__complete", "For completion scripts")->group(""), session);
  return app;
}

int run_program(int argc, char** argv) {
  signal(SIGPIPE, SIG_DFL);  // if the reader of stdout ends, such as head, the program ends quietly
  if (const auto exit = become_data(argc, argv)) return *exit;
  Interrupts::instance();
  Session session;
  const auto app = make_app(session);
  if (argc < 2) {
    std::cerr << app->help();
    return kUsage;
  }
  if (command_word(argc, argv) == "submit") argc = take_arguments(argc, argv, session.arguments);
  try {
    app->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app->exit(error);
    std::cerr << usage_problem(*app, error, argc, argv) << "\n";
    return kUsage;
  }
  return run_action(session, *app);
}

std::span<const Command> commands() {
  static const std::vector<Command> table{
      {"submit", "Submit a job file",
       "Checks the whole file first, and stores nothing if it has a problem. The job is safe once the id is\n"
       "printed (on stdout, alone; everything else goes to stderr). If the controller does not answer, muster asks\n"
       "again for 20 s; a lost answer never makes a second job.\n"
       "--wait and --follow return the job's result: 0 succeeded, 1 failed or cancelled. Ctrl-C leaves the job "
       "alone.\n\n"
       "--sweep submits a job for each combination of values, all of them or none, and prints the sweep's name. Each\n"
       "job stands alone: one that fails does not fail the others. Values are 1e-4,3e-4 or 0..3 (0, 1, 2, 3). The\n"
       "last part of a key is enough where no other key ends in it, as with --set: seed for train.seed. Job 7 of\n"
       "\"tune\" is tune-0007. A checkpoint.folder gets a subfolder for each job, named by its settings, and so do\n"
       "train.export_folder, train.log_folder and the folder of train.full_state_file. --wait waits for all jobs and\n"
       "returns 1 if one did not succeed.\n\n"
       "--print-script prints the script that muster would give sbatch; a sweep has one script for each array of "
       "jobs.\n"
       "--check asks Slurm whether it would take that script and when it would start it: exit code 5 if it would not.\n"
       "Neither submits anything.\n\n"
       "--env NAME gives the ranks a variable with its value in this shell, --env NAME=VALUE another value. Both\n"
       "work like [env]. Arguments after -- are added to the job file's command. --like 7 takes job 7's settings\n"
       "instead of a job file, with the environment that job 7 was submitted with; --set environment=submit takes\n"
       "your environment. muster spec 7 prints these settings as a job file.\n\n"
       "executor = \"debug\" runs the job's ranks on this machine, without a controller. Rank 0 has this terminal;\n"
       "the output of the others goes to stderr. The exit code is that of the first rank that failed. There is no\n"
       "requeue and no time limit. The job's files are in a temporary folder, which is removed at the end.\n\n"
       "  muster submit job.toml\n"
       "  muster submit --follow job.toml --set train.steps=50 --set data.source=fixture\n"
       "  id=$(muster submit job.toml) && muster wait $id --timeout 12h\n"
       "  muster submit --after $id --after failed:13 evaluate.toml\n"
       "  muster submit --sweep train.learning_rate=1e-4,3e-4 --sweep seed=0..3 --parallel 2 job.toml\n"
       "  muster submit job.toml --env WANDB_API_KEY -- --lr 3e-4\n"
       "  muster submit --like 7 --set train.steps=5000\n"
       "  muster submit --executor debug job.toml",
       define_submit},
      {"init", "Write a job file to begin with, with comments",
       "Each file trains on two processes of this machine as it is; --full is the same training at its full size.\n"
       "chess: Llama and games of chess. pythia: GPT-NeoX and manual pages, as DDP and sharded. t5: pairs of texts.\n"
       "bert: classes of texts. masked-lm: masked words. dino: images without labels. The recipes causal_lm, seq2seq,\n"
       "classify and masked_lm stand for chess, t5, bert and masked-lm. A file that is there is never overwritten.\n\n"
       "  muster init chess && muster submit --check chess.toml\n"
       "  muster init t5 --full -o t5-base.toml",
       define_init},
      {"plan", "Say what memory and traffic a training will need, before it is submitted",
       "muster-worker makes steps of the job's own model that compute nothing and need no memory, so a plan of "
       "any\n"
       "size takes seconds. It counts tensors on the CPU; a GPU needs less for activations, and up to 256 MiB more "
       "for\n"
       "logits. The program itself (about 300 MiB) comes on top. The estimates are the usual rule of thumb for\n"
       "parameters, gradients and states: 16 bytes a parameter with Adam in fp32, 8 or 6 with states in bf16, over "
       "all\n"
       "ranks. The limit is that of [slurm], or of this machine for executor = \"local\". Exit code 1: it does not "
       "fit.\n"
       "muster submit refuses such a job unless it has --force, and its ranks refuse to start unless\n"
       "fsdp.check_memory = false.\n\n"
       "  muster plan job.toml\n"
       "  muster plan job.toml --gpu-memory 80GiB --set train.micro_batch_size=4\n"
       "  muster plan job.toml --sweep fsdp.strategy=full_shard,zero1 --json | jq '.[].tensor_bytes'",
       define_plan},
      {"data", "Make training data of texts, JSON lines, images and other sources",
       "The program muster-data does the work, and no controller is needed. It must lie beside muster or in PATH. The\n"
       "data are files that all ranks of a node map, with checksums and with the tokenizer that made them: see\n"
       "docs/data.md. A command that was stopped or killed goes on when it is given again.\n\n"
       "  muster data prepare --help             sources and options\n"
       "  muster data prepare --from jsonl train.jsonl --to data --tokenizer models/t5 --fields input,target\n"
       "  muster data prepare --from chess --count 100000 --to games\n"
       "  muster data show data\n"
       "  muster data check data\n"
       "  muster data decode data --record 7",
       define_data},
      {"list", "List jobs, newest first",
       "SLURM is Slurm's number of the newest attempt. A held job starts no attempt until it is released; an attempt\n"
       "that runs already goes on. A queued job waits in Slurm: muster why says for what. A terminal shows as much of\n"
       "the table as fits its width. A pipe gets all of it, unless COLUMNS is set. -w shows the newest jobs that fit\n"
       "on the screen.\n\n"
       "  muster list\n"
       "  muster list 7 9\n"
       "  muster list -w --state running --state waiting\n"
       "  muster list --sweep s12\n"
       "  muster list --json | jq '.[] | select(.state == \"failed\") | .id'",
       define_list},
      {"top", "Show what each rank uses: CPU, memory, GPUs",
       "Without a job: the ranks of all jobs that run. On a terminal the table is shown again every two seconds, "
       "until\n"
       "q or Ctrl-C. Elsewhere it is printed once.\n"
       "CORES is CPU time over time, of the rank's process and all that it has started. MEMORY is theirs together, "
       "where\n"
       "a page that several share counts once; PEAK is the most that any sample has seen. GPU% is how busy the rank's\n"
       "GPUs are, and GPU MEM what is used of them, by whomever. AGE is the age of the sample. \"-\" is not known.\n\n"
       "  muster top\n"
       "  muster top 7 9 --sort cpu\n"
       "  muster top --json | jq '.[] | select(.cores < 0.1) | {job_id, rank}'",
       define_top},
      {"show", "Show jobs: why each is in its state, its attempts and ranks",
       "HEARD is the age of a rank's newest heartbeat. CORES and MEMORY are what all its processes use; muster top "
       "says\n"
       "more. SLOW marks a slow rank: each of its last 50 steps took more than 1.2 times the median over all ranks. "
       "Its\n"
       "number is the mean of these factors. With fewer than three ranks no rank counts as slow.\n\n"
       "  muster show 7\n"
       "  muster show 7 9\n"
       "  muster show 7 --json | jq .reason",
       define_show},
      {"spec", "Print a job's settings as a job file",
       "The printed file makes the same job again, with the environment of the first submitter ([submitted_env]).\n"
       "Without that table the job gets the environment of the new submitter. Keys with their default are left out.\n"
       "Secrets are hidden, as in muster show; a job file with a hidden value is refused.\n\n"
       "  muster spec 7 > job.toml\n"
       "  diff <(muster spec 7) <(muster spec 9)",
       define_spec},
      {"logs", "Print what a job's ranks wrote",
       "Lines of several ranks begin with [rank N]. -f waits for the job to start, goes on with its next attempts and\n"
       "ends with the job. Earlier attempts keep their logs: --attempt. If a job failed before any rank started, the\n"
       "reason is in Slurm's log: --slurm.\n"
       "Log files hold no times. With -f --timestamps each line has the time at which the controller saw it, a moment\n"
       "after it was written. Older lines have \"-\".\n\n"
       "  muster logs 7 -f --rank 0\n"
       "  muster logs 7 --slurm\n"
       "  muster logs 7 -f --tail 10 --timestamps\n"
       "  muster logs 7 --attempt 1 --tail 50",
       define_logs},
      {"events", "Print the history of a job, or of all jobs",
       "Every change of a job is an event. Events are kept for ever, even those of removed jobs. Without a job muster\n"
       "prints the events of all jobs.\n\n"
       "  muster events 7\n"
       "  muster events -f --json",
       define_events},
      {"metrics", "Print every number that a job reports, with step time and memory, by step",
       "A resumed job goes back to its checkpoint, so a step may come twice, the second time with a later attempt.\n"
       "Rows are sorted by attempt, then by step.\n\n"
       "  muster metrics 7 --csv > run.csv\n"
       "  muster metrics 7 --series validation/loss\n"
       "  muster metrics 7 -f --json | jq .loss",
       define_metrics},
      {"trace", "Record steps of a running training, for Perfetto",
       "All ranks record the same step, the next one that all of them can. Each writes a file for each step:\n"
       "forward, backward, recomputation and waits of each unit, collectives, and the optimizer; on GPUs on the "
       "device's\n"
       "clock too. muster prints the paths on stdout, one a line, when the files are complete. The paths are those on "
       "the\n"
       "nodes of the ranks. Open them in https://ui.perfetto.dev or chrome://tracing. Times are Unix time.\n"
       "A step that is recorded takes longer: each rank writes its file before the next step. Only one trace of a job "
       "is "
       "made\n"
       "at a time, and none of a program that is not muster-worker. Ctrl-C and --timeout end the waiting, not the "
       "trace.\n"
       "Exit code 1: a rank could not record a step; 124: --timeout passed.\n"
       "train.trace_step in a job file records a step that is known beforehand.\n\n"
       "  muster trace 7\n"
       "  muster trace 7 --steps 3 --at 1000 --timeout 10m\n"
       "  muster trace 7 --json | jq -r '.files[]'",
       define_trace},
      {"stacks", "Show where each rank of a job stands: the stacks of its processes",
       "muster asks the agents beside the ranks, and waits a few seconds. Frames of Python come from programs that "
       "call\n"
       "muster.init(), or from py-spy where it is installed; frames of muster-worker from itself. Of every thread "
       "comes\n"
       "what the kernel tells: state, system call, wait channel. A rank that is stopped gives that alone. Ranks go "
       "on.\n"
       "The last lines say which rank stands elsewhere than the others.\n"
       "muster takes stacks by itself when an attempt is suspected, and before it ends by a hang. They are kept with "
       "the\n"
       "job. Of an attempt that has ended, muster shows the newest.\n"
       "Exit code 1: no rank has given one, or none are kept.\n\n"
       "  muster stacks 7\n"
       "  muster stacks 7 --attempt 2 --rank 3\n"
       "  muster stacks 7 --json | jq -r .summary",
       define_stacks},
      {"wait", "Wait until a job has ended, and return its result",
       "Exit code 0: succeeded; 1: failed or cancelled; 124: --timeout passed, and the job goes on. If the controller\n"
       "cannot be reached, muster says so once and keeps waiting.\n\n"
       "  muster wait 7 --timeout 12h",
       define_wait},
      {"cancel", "Cancel jobs: their ranks save and leave, and the jobs never come back",
       "Ranks get resources.stop_grace (30s) to save and leave, then they are killed. The last checkpoint stays.\n"
       "Cancelling again while they leave is fine; an ended job cannot be cancelled (exit code 2). If one of several\n"
       "jobs refuses, the others are still cancelled. --sweep cancels the jobs that have not ended.\n\n"
       "  muster cancel 7\n"
       "  muster cancel --sweep s12",
       define_cancel},
      {"requeue", "End the running attempt after a save and start the next one",
       "A failed job starts again from its last checkpoint, with full requeue budgets. A job that succeeded or was\n"
       "cancelled never comes back (exit code 2): submit it again with muster submit --like. --sweep leaves such jobs\n"
       "alone.\n\n"
       "  muster requeue 7\n"
       "  muster requeue --sweep s12",
       define_requeue},
      {"hold", "Start no further attempt of jobs before they are released",
       "An attempt in Slurm's queue stays there and is held. An attempt that runs goes on. When it ends and the job\n"
       "would come back, the job waits for muster release.\n\n"
       "  muster hold 7 8\n"
       "  muster hold --sweep s12",
       define_hold},
      {"release", "Let held jobs start",
       "Releasing a job that is not held is an error (exit code 2).\n\n"
       "  muster release 7",
       define_release},
      {"limit", "Change a job's time limit",
       "The limit holds for the running attempt and for later ones. It counts from the start of the attempt, not from\n"
       "now. If it has passed already, the attempt saves and ends, and the job comes back (requeue.max_timed_out).\n"
       "Slurm lets only its operators give a running job more time.\n\n"
       "  muster limit 7 4h\n"
       "  muster limit 7 none",
       define_limit},
      {"rm", "Remove jobs that have ended, with their logs and checkpoints",
       "Lists do not show a removed job. muster deletes its metrics, its logs and the checkpoints in musterd's data\n"
       "folder. A checkpoint.folder that the job file names elsewhere stays, and so does the history (muster events).\n"
       "No other job gets its number. A job cannot be removed (exit code 2) before it has ended, or while an open job\n"
       "waits for it or saves into its folder. On a terminal muster asks first.\n\n"
       "  muster rm 7 8\n"
       "  muster rm --sweep s12 --dry-run",
       define_rm},
      {"prune", "Remove your old jobs",
       "Removes your jobs that have ended, as muster rm does. With both --older-than and --keep-last it removes jobs\n"
       "that are old and not among the newest. Jobs that an open job needs stay.\n\n"
       "  muster prune --older-than 30d --dry-run\n"
       "  muster prune --keep-last 100 --state succeeded",
       define_prune},
      {"why", "Explain why a job is in its state, and what to do about it",
       "Prints one sentence. For a job in Slurm's queue it also prints Slurm's reason, and the start that Slurm\n"
       "expects.\n\n"
       "  muster why 7\n"
       "  muster why 5 9\n"
       "  muster why 7 --json | jq -r .action",
       define_why},
      {"results", "Compare the jobs of a sweep by a metric, best first",
       "Jobs are compared by their best validation loss, once one of them has reported one: every evaluation measures\n"
       "the same data. Series of the training itself, such as loss and tokens_per_s, are compared by the mean of the\n"
       "last 20 steps: the best single step is only the luckiest batch. The table's title, and ranked_by in JSON and\n"
       "CSV, name the series. --metric takes any series that a job has reported; muster metrics shows them.\n"
       "A step that a resumed attempt repeated counts once. Jobs that failed or were cancelled come last, whatever\n"
       "they reached. The series says whether small or large is good. If it does not, --best must say it.\n\n"
       "  muster results\n"
       "  muster results --sweep s12 --metric loss --top 5\n"
       "  muster results --sweep s12 --csv > sweep.csv",
       define_results},
      {"generate", "Let a model that was trained write text",
       "MODEL is a job's number, or a folder: a model of Hugging Face or an export, the checkpoints of a training, or\n"
       "one checkpoint. A decoder continues each text, and an encoder-decoder such as T5 answers it. A single text is\n"
       "printed as its tokens come. muster-infer does the work on this machine, which needs memory for the model.\n"
       "Texts are arguments, lines of -f FILE, or lines of standard input. Options stand before texts that begin with\n"
       "a dash. docs/inference.md says more.\n\n"
       "  muster generate 7 \"1. e4 e5 2.\"\n"
       "  muster generate 7 --best --temperature 0.8 --top-p 0.95 \"NAME\"\n"
       "  muster generate ./export -f prompts.txt --json | jq -r .text",
       define_generate},
      {"embed", "Print the vectors that a model makes of texts or images",
       "MODEL is as for muster generate. Vectors are printed as numbers, with --json as objects, or written to a file\n"
       "of --to. Its tensor \"embeddings\" is fp32 [texts, hidden].\n\n"
       "  muster embed ./export \"a text\" \"another one\" --json\n"
       "  muster embed 7 -f texts.txt --pool mean --to vectors.safetensors\n"
       "  muster embed ./models/dino photos/ --to vectors.safetensors",
       define_embed},
      {"classify", "Print the labels that a model gives to texts",
       "MODEL is as for muster generate, and must be a classifier. Each text gets a line with its most likely labels.\n"
       "\n"
       "  muster classify 7 \"a text\"\n"
       "  muster classify ./export -f texts.txt --top 1 --json | jq -r '.labels[0].label'",
       define_classify},
      {"partitions", "Show the partitions you may use, and their limits",
       "* marks the partition of jobs that name none. LIMITS shows the limits of muster's admins, SLURM'S those of\n"
       "Slurm. PREEMPTED is the time that a job there has to save when another job preempts it.\n\n"
       "  muster partitions\n"
       "  muster partitions --json | jq '.[] | select(.may_use) | .name'",
       define_partitions},
      {"nodes", "Show which job has which GPU of this machine, and Slurm's nodes",
       "Of the controller's own machine, where local jobs run: its GPUs and cores, who has them, and who waits.\n"
       "Of Slurm: its nodes, and which of them muster avoids. A node that was lost under a job, or that failed its\n"
       "partition's health check, gets no rank for ten minutes. A node that failed a job's own health check gets\n"
       "no rank of that job.\n\n"
       "  muster nodes\n"
       "  muster nodes --json | jq '.[] | select(.excluded_until) | .name'\n"
       "  muster nodes --json | jq '.[-1].gpus[] | select(.job_id == 0) | .number'",
       define_nodes},
      {"admin", "Manage partitions: who may use them, limits, defaults, and who changed them",
       "Everybody who has the controller's token is an admin.\n\n"
       "  muster admin partition list\n"
       "  muster admin partition add main --default true --max-time 12h\n"
       "  muster admin audit",
       define_admin},
      {"dashboard", "Print the link that opens the dashboard",
       "Opening the link logs you in. The link holds the controller's token, so do not show it to others. stdout has\n"
       "the link alone. If only the dashboard's own machine can reach it and you are on another one (over ssh, or\n"
       "with --address of another host), stderr has the ssh command to run on your machine before you open the link.\n"
       "--open starts this machine's browser. The browser gets a file that only you can read, not the link itself.\n\n"
       "  muster dashboard\n"
       "  muster dashboard --open",
       define_dashboard},
      {"doctor", "Check that everything that muster needs is in place",
       "Prints one line for each check: ok, note (fine, but good to know) or bad with a remedy. Exit code 1 if any is "
       "bad.",
       define_doctor},
      {"completion", "Print the completion script of a shell",
       "  source <(muster completion bash)                     # in ~/.bashrc\n"
       "  source <(muster completion zsh)                      # in ~/.zshrc, after compinit\n"
       "  muster completion fish > ~/.config/fish/completions/muster.fish",
       define_completion},
      {"help", "Explain a command",
       "Does the same as --help after the command.\n\n"
       "  muster help submit\n"
       "  muster help admin partition",
       define_help},
      {"version", "Print the version", "", define_version},
  };
  return table;
}

}  // namespace cli
