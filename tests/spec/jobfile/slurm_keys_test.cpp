// Goal: the keys for schedulers ([slurm], executor, after, hold) are read and checked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "spec/jobfile/job_file.h"
#include "spec/jobfile/validate.h"
#include "tests/places.h"

namespace jobfile {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

JobFile parsed(const std::string& rest, const std::vector<std::string>& set = {}) {
  std::vector<Override> overrides;
  for (const auto& assignment : set) overrides.push_back(override_of_set(assignment));
  return compose(JobSource::of_text("name = \"a\"\ncommand = [\"true\"]\n" + rest, "job.toml", "/tmp"), overrides,
                 FileChecks::kLook);
}

TEST(SlurmKeys, ASweepIsLimitedByMusterOrBySlurmAndNotByBoth) {
  EXPECT_THAT(
      parsed("[slurm]\narray_parallelism = 2\n[sweep]\nparallel = 3\nenv.A = [\"1\", \"2\"]\n").problems,
      ElementsAre("job.toml:4:21: slurm.array_parallelism \"2\": the sweep's parallel is 3: want either muster's limit "
                  "or that of Slurm's arrays; leave out slurm.array_parallelism, or parallel in [sweep] and "
                  "--parallel"));
  EXPECT_THAT(parsed("[slurm]\narray_parallelism = 2\n[sweep]\nenv.A = [\"1\", \"2\"]\n").problems, IsEmpty());
  EXPECT_THAT(parsed("[slurm]\narray_parallelism = 0\n").problems, ElementsAre(HasSubstr("array_parallelism")));
}

TEST(Launcher, OwnIsForOneProcessANodeOfACommand) {
  EXPECT_THAT(parsed("launcher = \"own\"\n[resources]\nnodes = 2\n").problems, IsEmpty());
  EXPECT_EQ(parsed("launcher = \"own\"\n").spec.launcher(), "own");
  EXPECT_EQ(parsed("").spec.launcher(), "muster");
  EXPECT_THAT(
      parsed("launcher = \"own\"\n[resources]\nranks_per_node = 2\n").problems,
      ElementsAre("job.toml:3:12: launcher \"own\": own starts the command once on each node; it starts its ranks "
                  "itself; leave out resources.ranks_per_node, and tell the command how many ranks it is to "
                  "start"));
  const auto recipe = compose(JobSource::of_text("name = \"a\"\nlauncher = \"own\"\n[train]\n", "job.toml", "/tmp"), {},
                              FileChecks::kSkip);
  EXPECT_THAT(recipe.problems, ::testing::Contains(HasSubstr("want muster: a recipe starts no ranks itself")));
  EXPECT_THAT(parsed("launcher = \"torchrun\"\n").problems, ElementsAre(HasSubstr("launcher")));
}

TEST(SbatchsWords, ValuesWithOneMeaningAreUnderstood) {
  const auto memory = [](const std::string& text) {
    return slurm_whole(parsed("[slurm]\nmem = \"" + text + "\"\n").spec, "mem");
  };
  constexpr std::int64_t kGiB = 1 << 30;
  EXPECT_EQ(memory("120G"), 120 * kGiB);
  EXPECT_EQ(memory("48g"), 48 * kGiB);
  EXPECT_EQ(memory("400GB"), 400 * kGiB);
  EXPECT_EQ(memory("64000M"), 64000 * (kGiB >> 10));
  EXPECT_EQ(memory("120GiB"), 120 * kGiB) << "our own form";
  EXPECT_EQ(slurm_whole(parsed("", {"slurm.mem_per_gpu=80G"}).spec, "mem_per_gpu"), 80 * kGiB);
  const auto limit = [](const std::string& text) {
    return parsed("[resources]\ntime_limit = \"" + text + "\"\n").spec.resources().time_limit_ms() / 60'000;
  };
  EXPECT_EQ(limit("2-00:00:00"), 2 * 24 * 60);
  EXPECT_EQ(limit("1-12"), 36 * 60);
  EXPECT_EQ(limit("1-12:30"), 36 * 60 + 30);
  EXPECT_EQ(limit("12:30:00"), 12 * 60 + 30);
  EXPECT_EQ(limit("12h30m"), 12 * 60 + 30) << "our own form";
}

TEST(SbatchsWords, ValuesWithTwoMeaningsAreAnsweredWithOurForm) {
  const auto time = [](const std::string& text) { return parsed("[resources]\ntime_limit = " + text + "\n").problems; };
  EXPECT_THAT(time("4320"), ElementsAre(testing::EndsWith("; sbatch reads minutes: write \"3d\"")));
  EXPECT_THAT(time("\"90\""), ElementsAre(testing::EndsWith("; sbatch reads minutes: write \"1h30m\"")));
  EXPECT_THAT(time("\"90:00\""), ElementsAre(testing::EndsWith("; sbatch reads minutes and seconds: write \"1h30m\"")));
  EXPECT_THAT(time("\"UNLIMITED\""), ElementsAre(testing::EndsWith("; leave it out for no limit")));
  EXPECT_THAT(time("\"2-00:00:00:00\""), ElementsAre(HasSubstr("want a duration")));
  const auto memory = [](const std::string& text) { return parsed("[slurm]\nmem = " + text + "\n").problems; };
  EXPECT_THAT(memory("\"64000\""), ElementsAre(testing::EndsWith("; sbatch reads MiB: write \"64000MiB\"")));
  EXPECT_THAT(memory("64000"), ElementsAre(testing::EndsWith("; sbatch reads MiB: write \"64000MiB\"")));
  EXPECT_THAT(memory("\"0\""), ElementsAre(testing::EndsWith("leave it out, and set slurm.exclusive = true")));
  EXPECT_THAT(memory("\"12X\""), ElementsAre(HasSubstr("want a size")));
}

TEST(SbatchsWords, ItsNamesInTheTableSlurmMeanOurKeys) {
  const auto file = parsed(
      "[slurm]\ntime = 90\nnodes = 2\nntasks-per-node = 4\ncpus_per_task = 8\ngpus-per-task = 1\npartition = "
      "\"gpu\"\n");
  EXPECT_THAT(file.problems, IsEmpty());
  EXPECT_EQ(file.spec.resources().time_limit_ms(), 90 * 60'000) << "all of sbatch's forms are meant there";
  EXPECT_EQ(file.spec.resources().nodes(), 2U);
  EXPECT_EQ(file.spec.resources().ranks_per_node(), 4U);
  EXPECT_EQ(file.spec.resources().cpus_per_rank(), 8U);
  EXPECT_EQ(file.spec.resources().gpus_per_rank(), 1U);
  EXPECT_EQ(parsed("[slurm]\ntime = \"12h\"\n").spec.resources().time_limit_ms(), 12 * 3'600'000);
  EXPECT_EQ(parsed("", {"slurm.time=1:30"}).spec.resources().time_limit_ms(), 90'000);
  EXPECT_EQ(parsed("[slurm]\ntime = 5\n", {"resources.time_limit=2h"}).spec.resources().time_limit_ms(), 7'200'000)
      << "the option stands above the file";
  EXPECT_THAT(
      parsed("[resources]\nnodes = 2\n[slurm]\nnodes = 3\n").problems,
      ElementsAre("job.toml:6:9: slurm.nodes: this key means resources.nodes, which is given, too; remove one of "
                  "them"));
  EXPECT_THAT(parsed("[slurm]\ntime = \"soon\"\n").problems,
              ElementsAre(StartsWith("job.toml:4:8: resources.time_limit \"soon\": want a duration")));
}

TEST(SbatchsWords, OtherNamesSayWhatToUse) {
  EXPECT_THAT(parsed("[slurm]\nsignal = \"USR1@60\"\n").problems,
              ElementsAre("job.toml:4:1: slurm.signal: unknown key; use resources.stop_grace"));
  EXPECT_THAT(
      parsed("[slurm]\ngpus = 8\nerror = \"x\"\n").problems,
      ElementsAre(
          "job.toml:4:1: slurm.gpus: unknown key; use resources.gpus_per_rank, which counts the GPUs of one rank",
          "job.toml:5:1: slurm.error: unknown key; a rank's log holds both: use slurm.output"));
  EXPECT_THAT(parsed("[slurm]\npartitoin = \"x\"\n").problems, ElementsAre(HasSubstr("did you mean slurm.partition")));
}

TEST(SlurmKeys, AllOfThemArrive) {
  const auto file = parsed(R"(
executor = "slurm"
after = ["12", "failed:13", "ended:14"]
hold = true
[slurm]
partition = "main,low"
account = "lab"
qos = "normal"
constraint = "a100&ib"
gres = "gpu:fake:2"
reservation = "week"
exclude = "n[3-5]"
nodelist = "n1"
mem_per_cpu = "2GiB"
exclusive = true
nice = -5
array_parallelism = 3
licenses = "matlab:2"
mail_user = "ada@example.org"
mail_type = "END,FAIL"
output = "logs/%x-%4j.out"
setup = ["module load cuda", "echo \"a b\" 'c' $HOME %j"]
teardown = ["rm -rf /tmp/x"]
srun_args = ["--cpu-bind=cores"]
health_check = "nvidia-smi -L"
[slurm.options]
hint = "nomultithread"
priority = 5
contiguous = true
)");
  ASSERT_THAT(file.problems, IsEmpty());
  const auto& slurm = file.spec.slurm();
  EXPECT_EQ(file.spec.executor(), "slurm");
  EXPECT_THAT(file.spec.after(), ElementsAre("succeeded:12", "failed:13", "ended:14"));
  EXPECT_TRUE(file.spec.hold());
  EXPECT_EQ(slurm_text(file.spec, "partition"), "main,low");
  EXPECT_EQ(slurm_text(file.spec, "gres"), "gpu:fake:2");
  EXPECT_EQ(slurm_whole(file.spec, "array_parallelism"), 3);
  EXPECT_EQ(slurm_whole(file.spec, "mem_per_cpu"), std::int64_t{2} << 30);
  EXPECT_EQ(slurm_whole(file.spec, "nice"), -5);
  EXPECT_EQ(slurm_text(file.spec, "output"), "logs/%x-%4j.out");
  EXPECT_EQ(get(file.spec, *find_key("slurm.exclusive")), Value(true));
  EXPECT_THAT(slurm.setup(), ElementsAre("module load cuda", "echo \"a b\" 'c' $HOME %j"));
  EXPECT_THAT(slurm.teardown(), ElementsAre("rm -rf /tmp/x"));
  EXPECT_THAT(slurm.srun_args(), ElementsAre("--cpu-bind=cores"));
  EXPECT_EQ(slurm_text(file.spec, "health_check"), "nvidia-smi -L");
  EXPECT_EQ(slurm.options().at("hint"), "nomultithread");
  EXPECT_EQ(slurm.options().at("priority"), "5");
  EXPECT_EQ(slurm.options().at("contiguous"), "") << "a bare flag";
}

TEST(SlurmKeys, AFileWithoutThemGoesWhereTheControllerSends) {
  const auto file = parsed("");
  ASSERT_THAT(file.problems, IsEmpty());
  EXPECT_EQ(file.spec.executor(), "auto");
  EXPECT_FALSE(file.spec.has_slurm());
  EXPECT_FALSE(file.spec.hold());
}

struct Refusal {
  std::string text;
  std::string problem;
};
class SlurmRefusals : public testing::TestWithParam<Refusal> {};

TEST_P(SlurmRefusals, NamePlaceValueAndRemedy) {
  EXPECT_THAT(parsed(GetParam().text).problems, ElementsAre(GetParam().problem)) << GetParam().text;
}

INSTANTIATE_TEST_SUITE_P(
    Keys, SlurmRefusals,
    testing::Values(
        Refusal{"executor = \"slrum\"",
                "job.toml:3:12: executor \"slrum\": want one of \"auto\", \"slurm\", \"local\", \"debug\""},
        Refusal{"[slurm]\npartiton = \"main\"",
                "job.toml:4:1: slurm.partiton: unknown key, did you mean slurm.partition"},
        Refusal{"[slurm]\npartition = 3", "job.toml:4:13: slurm.partition \"3\": want a text of one line"},
        Refusal{"[slurm]\npartition = \"a\\n#SBATCH --uid=0\"",
                "job.toml:4:13: slurm.partition \"a #SBATCH --uid=0\": want a text of one line"},
        Refusal{"[slurm]\nhealth_check = \"a\\u0000b\"",
                "job.toml:4:16: slurm.health_check \"a b\": want a text of one line"},
        Refusal{"[slurm]\nmem = \"16 gigabytes\"",
                "job.toml:4:7: slurm.mem \"16 gigabytes\": want a size such as 16MiB, from 1MiB to 1024TiB"},
        Refusal{"[slurm]\nmem = \"16GiB\"\nmem_per_gpu = \"8GiB\"",
                "job.toml:5:15: slurm.mem_per_gpu \"8GiB\": want at most one of mem, mem_per_cpu and mem_per_gpu; "
                "remove it, or slurm.mem"},
        Refusal{"[slurm]\nnice = 2147483646",
                "job.toml:4:8: slurm.nice \"2147483646\": want a whole number from -2147483645 to 2147483645"},
        Refusal{"[slurm]\nexclude = \"node1, node2\"",
                "job.toml:4:11: slurm.exclude \"node1, node2\": column 7: white space inside a host list; want nodes "
                "such as \"n1,n[3-5]\""},
        Refusal{"[slurm]\nnodelist = \"node[1-4\"",
                "job.toml:4:12: slurm.nodelist \"node[1-4\": column 5: '[' without its ']'; want nodes such as "
                "\"n1,n[3-5]\""},
        Refusal{"[slurm]\noutput = \"a%k\"",
                "job.toml:4:10: slurm.output \"a%k\": want after each % one of %, A, J, N, a, j, n, s, t, u, x, as in "
                "man sbatch"},
        Refusal{"[slurm]\noutput = \"a%4\"",
                "job.toml:4:10: slurm.output \"a%4\": want after each % one of %, A, J, N, a, j, n, s, t, u, x, as in "
                "man sbatch"},
        Refusal{"[slurm]\noutput = \"logs/\"",
                "job.toml:4:10: slurm.output \"logs/\": want a file's name, such as \"logs/%x-%j.out\""},
        Refusal{"[slurm]\nsetup = \"module load cuda\"",
                "job.toml:4:9: slurm.setup \"module load cuda\": want an array of texts of one line each"},
        Refusal{"[slurm]\nsetup = [\"a\", \"b\\nc\"]",
                "job.toml:4:15: slurm.setup \"b c\": want one line; write each as a text of its own"},
        Refusal{"[slurm]\nsrun_args = [1]", "job.toml:4:14: slurm.srun_args \"1\": want a text in quotes"},
        Refusal{"[slurm]\noptions = [\"--hint\"]",
                "job.toml:4:11: slurm.options \"[ '--hint' ]\": want a table of option = text, number or true"}));

INSTANTIATE_TEST_SUITE_P(
    Options, SlurmRefusals,
    testing::Values(
        Refusal{"[slurm.options]\njob-name = \"x\"",
                "job.toml:4:12: slurm.options.job-name: muster sets this option itself; use name"},
        Refusal{
            "[slurm.options]\ncomment = \"x\"",
            "job.toml:4:11: slurm.options.comment: muster sets this option itself; muster finds its own jobs by it"},
        Refusal{"[slurm.options]\ndepend = \"afterok:1\"",
                "job.toml:4:10: slurm.options.depend: sbatch may read it as dependency, which muster sets itself; use "
                "after, which names muster's jobs"},
        Refusal{"[slurm.options]\n\"--hint\" = \"x\"",
                "job.toml:4:12: slurm.options.--hint: want the option without its dashes: hint"},
        Refusal{"[slurm.options]\nN = 2",
                "job.toml:4:5: slurm.options.N: want the option's long name, such as hint; see man sbatch"},
        Refusal{"[slurm.options]\ncore_spec = 2",
                "job.toml:4:13: slurm.options.core_spec: want the option as sbatch spells it: core-spec"},
        Refusal{"[slurm.options]\n\"a b\" = 2",
                "job.toml:4:9: slurm.options.a b: want the long name of an option of sbatch, such as hint"},
        Refusal{"[slurm.options]\nhint = false",
                "job.toml:4:8: slurm.options.hint \"false\": want a text, a number or true; or leave it out"},
        Refusal{"[slurm.options]\nhint = \"\"",
                "job.toml:4:8: slurm.options.hint \"\": want a text, a number or true; true for an option without a "
                "value"},
        Refusal{"[slurm.options]\nhint = [1]",
                "job.toml:4:8: slurm.options.hint \"[ 1 ]\": want a text, a number or true"},
        Refusal{"[slurm.options]\nhint = \"a\\nb\"",
                "job.toml:4:8: slurm.options.hint \"a b\": want a text of one line"}));

INSTANTIATE_TEST_SUITE_P(
    Start, SlurmRefusals,
    testing::Values(
        Refusal{"after = \"12\"", "job.toml:3:9: after \"12\": want an array of jobs such as [\"12\", \"failed:13\"]"},
        Refusal{"after = [12]", "job.toml:3:10: after \"12\": want a text in quotes"},
        Refusal{
            "after = [\"done:12\"]",
            "job.toml:3:9: after \"done:12\": want a job's number such as \"12\", \"succeeded:12\", \"failed:12\" or "
            "\"ended:12\"; muster list shows them"},
        Refusal{"after = [\"failed:0\"]",
                "job.toml:3:9: after \"failed:0\": want a job's number such as \"12\", \"succeeded:12\", \"failed:12\" "
                "or \"ended:12\"; muster list shows them"},
        Refusal{"hold = \"yes\"", "job.toml:3:8: hold \"yes\": want true or false"},
        Refusal{"executor = \"debug\"\nresources.ranks_per_node = 65",
                "job.toml:3:12: executor \"debug\": debug runs at most 64 ranks, not 65: they all share this machine; "
                "lower resources.nodes or resources.ranks_per_node, or use another executor"},
        Refusal{"executor = \"debug\"\nhold = true",
                "job.toml:4:8: hold \"true\": debug starts at once and can't be held; leave it out, or use another "
                "executor"}));

TEST(SlurmKeys, OptionsThatMusterNeedsItselfAreRefusedWithTheKeyToUse) {
  for (const char* option : {"comment", "array", "job-name", "output", "error", "requeue", "no-requeue", "dependency",
                             "nodes", "ntasks", "export", "time", "signal", "partition", "mem", "wrap", "hold"}) {
    EXPECT_THAT(refuse_slurm_option(option), StartsWith("muster sets this option itself; ")) << option;
  }
  EXPECT_THAT(refuse_slurm_option("cpus-per-task"), HasSubstr("resources.cpus_per_rank"));
  for (const char* short_form : {"comm", "nod", "exp", "outp", "gpu"}) {
    EXPECT_THAT(refuse_slurm_option(short_form), StartsWith("sbatch may read it as ")) << short_form;
  }
  for (const char* option : {"hint", "wckey", "core-spec", "gres-flags", "time-min", "switches", "no-kill",
                             "distribution", "begin", "deadline", "tmp", "mincpus", "acctg-freq", "prefer", "batch"}) {
    EXPECT_EQ(refuse_slurm_option(option), "") << option;
  }
}

TEST(SlurmKeys, CanBeSetOnTheCommandLine) {
  const auto file = parsed("", {"slurm.partition=low", "slurm.options.hint=nomultithread", "slurm.options.priority=5",
                                "after=[\"7\"]", "hold=true", "executor=slurm", "slurm.mem=2GiB"});
  ASSERT_THAT(file.problems, IsEmpty());
  EXPECT_EQ(slurm_text(file.spec, "partition"), "low");
  EXPECT_EQ(file.spec.slurm().options().at("hint"), "nomultithread");
  EXPECT_EQ(file.spec.slurm().options().at("priority"), "5");
  EXPECT_THAT(file.spec.after(), ElementsAre("succeeded:7"));
  EXPECT_THAT(parsed("", {"slurm.options.nodes=2"}).problems,
              ElementsAre("--set slurm.options.nodes=2: muster sets this option itself; use resources.nodes"));
  EXPECT_THAT(parsed("", {"slurm.partition.x=2"}).problems, ElementsAre(HasSubstr("unknown key")));
}

// Parameters of submitit and Hydra are the keys of [slurm], too.
TEST(SlurmKeys, ThePythonPackageHasThem) {
  const std::map<Kind, std::string> words{{Kind::kText, "text"},
                                          {Kind::kSize, "size"},
                                          {Kind::kFlag, "flag"},
                                          {Kind::kWhole, "whole"},
                                          {Kind::kLines, "lines"}};
  std::string text =
      "\"\"\"The keys of [slurm] of a job file, and what each takes. `./dev bless` writes this file from "
      "spec/jobfile/job_keys.cpp.\"\"\"\n\nKINDS = {\n";
  for (const auto& key : job_keys()) {
    // Both have a parameter of their own for how many jobs run at once, and for any other option.
    if (!key.name.starts_with("slurm.") || key.name == "slurm.array_parallelism" || key.kind == Kind::kOptions)
      continue;
    text += "    \"" + leaf_of(key.name) + "\": \"" + words.at(key.kind) + "\",\n";
  }
  text += "}\n";
  const auto file = ::test::source_folder() + "/python/muster/_submitit/slurm_keys.py";
  if (std::getenv("MUSTER_BLESS") != nullptr) std::ofstream(file) << text;
  std::stringstream there;
  there << std::ifstream(file).rdbuf();
  EXPECT_EQ(there.str(), text) << "run ./dev bless";
}

TEST(SlurmKeys, ASpecFromAnywhereIsHeldToTheSameRules) {
  auto spec = parsed("").spec;
  auto& slurm = *spec.mutable_slurm();
  set_slurm_text(spec, "partition", "a\nb");
  slurm.add_setup("a\nb");
  slurm.add_srun_args(std::string("a\0b", 3));
  (*slurm.mutable_options())["comment"] = "x";
  (*slurm.mutable_options())["hint"] = "a\nb";
  set(spec, *find_key("slurm.mem"), std::int64_t{-1});
  (*slurm.mutable_values())["slurm.nice"].set_text("very");
  (*slurm.mutable_values())["slurm.priority"].set_text("5");
  spec.set_executor("cloud");
  spec.add_after("13");
  spec.add_after("whenever");
  std::vector<std::string> keys;
  for (const auto& problem : validate(spec, FileChecks::kSkip)) keys.push_back(problem.field);
  EXPECT_THAT(keys,
              ElementsAre("executor", "slurm.partition", "slurm.mem", "slurm.nice", "slurm.priority", "slurm.setup",
                          "slurm.srun_args", "slurm.options.comment", "slurm.options.hint", "after"));
}

TEST(SlurmOutput, MayLeaveTheWorkingFolderButNotGoThroughAFile) {
  const auto problems = [](const std::string& output) {
    return parsed("[slurm]\noutput = \"" + output + "\"\n").problems;
  };
  for (const char* fine : {"%x-%j.out", "no/such/folder/%j.out", "../elsewhere/%j.out", "/tmp/%x/%j.out"}) {
    EXPECT_THAT(problems(fine), IsEmpty()) << fine;
  }
  EXPECT_THAT(
      problems("/dev/null/%j.out"),
      ElementsAre(
          "job.toml:4:10: slurm.output \"/dev/null/%j.out\": want a file in a folder; /dev/null is not a folder; "
          "choose another path"));
}

}  // namespace
}  // namespace jobfile
