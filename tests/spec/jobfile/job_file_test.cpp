#include "spec/jobfile/job_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "spec/jobfile/sweep.h"
#include "tests/places.h"
#include "tests/recipe_values.h"

namespace jobfile {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

JobFile parsed(const std::string& text, const std::vector<std::string>& set = {}) {
  std::vector<Override> overrides;
  for (const auto& assignment : set) overrides.push_back(override_of_set(assignment));
  return compose(JobSource::of_text(text, "job.toml", "/tmp"), overrides, FileChecks::kLook);
}

constexpr const char* kRecipe = "name = \"a\"\n[train]\n";
constexpr const char* kCommand = "name = \"a\"\ncommand = [\"true\"]\n";

struct Refusal {
  std::string text;
  std::vector<std::string> problems;
};

class Refusals : public testing::TestWithParam<Refusal> {};

TEST_P(Refusals, NamePlaceValueAndRemedy) {
  EXPECT_THAT(parsed(GetParam().text).problems, ElementsAreArray(GetParam().problems)) << GetParam().text;
}

const std::string recipe(const std::string& rest) {
  return kRecipe + rest;
}
const std::string command(const std::string& rest) {
  return kCommand + rest;
}

INSTANTIATE_TEST_SUITE_P(
    Keys, Refusals,
    testing::Values(
        Refusal{recipe("learing_rate = 1"),
                {"job.toml:3:1: train.learing_rate: unknown key, did you mean train.learning_rate"}},
        Refusal{recipe("hidden_size = 1"),
                {"job.toml:3:1: train.hidden_size: unknown key, did you mean model.hidden_size"}},
        Refusal{recipe("frobnicate = 1"),
                {"job.toml:3:1: train.frobnicate: unknown key; muster submit --help lists all"}},
        Refusal{command("[resource]\nnodes = 1"), {"job.toml:3:2: resource: unknown key, did you mean resources"}},
        Refusal{command("steps = 5"), {"job.toml:3:1: steps: unknown key, did you mean train.steps"}},
        Refusal{command("\"resources.nodes\" = 5"),
                {"job.toml:3:1: \"resources.nodes\": unknown key; write it without quotes, or nodes below "
                 "[resources]"}},
        Refusal{command("resources = 5"),
                {"job.toml:3:13: resources \"5\": want a table: [resources] and its keys below"}},
        Refusal{"name = \"a\"\ntrain = 5", {"job.toml:2:9: train \"5\": want a table: [train] and its keys below"}}));

INSTANTIATE_TEST_SUITE_P(
    Types, Refusals,
    testing::Values(
        Refusal{
            recipe("steps = \"10\""),
            {"job.toml:3:9: train.steps \"10\": want a whole number from 1 to 4294967295; write it without quotes"}},
        Refusal{recipe("steps = \"ten\""),
                {"job.toml:3:9: train.steps \"ten\": want a whole number from 1 to 4294967295"}},
        Refusal{recipe("steps = 1.5"), {"job.toml:3:9: train.steps \"1.5\": want a whole number from 1 to 4294967295"}},
        Refusal{recipe("steps = [1]"),
                {"job.toml:3:9: train.steps \"[ 1 ]\": want a whole number from 1 to 4294967295"}},
        Refusal{recipe("learning_rate = true"),
                {"job.toml:3:17: train.learning_rate \"true\": want a number above 0, at most 1000"}},
        Refusal{recipe("schedule = 3"),
                {"job.toml:3:12: train.schedule \"3\": want one of \"cosine\", \"linear\", \"constant\", \"step\""}},
        Refusal{recipe("[fsdp]\nprefetch = 1"), {"job.toml:4:12: fsdp.prefetch \"1\": want true or false"}},
        Refusal{command("working_folder = 3"), {"job.toml:3:18: working_folder \"3\": want a path"}},
        Refusal{command("env = 3"), {"job.toml:3:7: env \"3\": want a table of NAME = text, number, true or false"}},
        Refusal{command("[env]\nA = [1]"),
                {"job.toml:4:5: env.A \"[ 1 ]\": want a text in quotes, a number, true or false"}},
        Refusal{command("submitted_env = 3"),
                {"job.toml:3:17: submitted_env \"3\": want a table of NAME = text, number, true or false"}},
        Refusal{"name = \"a\"\ncommand = \"python3 train.py\"",
                {"job.toml:2:11: command \"python3 train.py\": want an array of texts such as [\"python3\", "
                 "\"train.py\"]"}},
        Refusal{"name = \"a\"\ncommand = [\"sleep\", 5]",
                {"job.toml:2:21: command \"5\": want a text in quotes, as every argument"}}));

INSTANTIATE_TEST_SUITE_P(
    Values, Refusals,
    testing::Values(
        Refusal{"name = \"a b\"\ncommand = [\"true\"]",
                {"job.toml:1:8: name \"a b\": want 1 to 128 letters, digits and any of . _ - = , +"}},
        Refusal{recipe("steps = 0"), {"job.toml:3:9: train.steps \"0\": want a whole number from 1 to 4294967295"}},
        Refusal{recipe("steps = -3"), {"job.toml:3:9: train.steps \"-3\": want a whole number from 1 to 4294967295"}},
        Refusal{recipe("steps = 4294967296"),
                {"job.toml:3:9: train.steps \"4294967296\": want a whole number from 1 to 4294967295"}},
        Refusal{recipe("learning_rate = 0"),
                {"job.toml:3:17: train.learning_rate \"0\": want a number above 0, at most 1000"}},
        Refusal{recipe("learning_rate = nan"),
                {"job.toml:3:17: train.learning_rate \"nan\": want a number above 0, at most 1000"}},
        Refusal{recipe("recipe = \"gan\""),
                {"job.toml:3:10: train.recipe \"gan\": want one of \"causal_lm\", \"seq2seq\", \"classify\", "
                 "\"masked_lm\", \"dino\""}},
        Refusal{
            command("[resources]\ntime_limit = \"12 hours\""),
            {"job.toml:4:14: resources.time_limit \"12 hours\": want a duration such as 12h, 30m, 90s, 500ms or 1h30m, "
             "from 1s to 10000d"}},
        Refusal{command("[resources]\ntime_limit = 3600"),
                {"job.toml:4:14: resources.time_limit \"3600\": want a duration such as 12h, 30m, 90s, 500ms or 1h30m, "
                 "from 1s to 10000d; sbatch reads minutes: write \"2d12h\""}},
        Refusal{recipe("[data]\nmax_bytes = \"16MB\""),
                {"job.toml:4:13: data.max_bytes \"16MB\": want a size such as 16MiB, from 1KiB to 1TiB"}},
        Refusal{recipe("[data]\nvalidation_fraction = 0.95"),
                {"job.toml:4:23: data.validation_fraction \"0.95\": want a number from 0 to 0.9"}},
        Refusal{command("[env]\n\"1A\" = \"x\""),
                {"job.toml:4:8: env.1A \"1A\": want a variable's name: letters, digits and \"_\", no digit first; "
                 "rename it"}},
        Refusal{command("working_folder = \"\""), {"job.toml:3:18: working_folder \"\": want a path"}},
        Refusal{
            command("[resources]\nnodes = 100\nranks_per_node = 100"),
            {"job.toml:4:9: resources.nodes \"100\": want at most 4096 ranks, not 100 x 100 = 10000; lower nodes or "
             "ranks_per_node"}}));

// muster-agent (on Slurm) and muster-worker would refuse these values at each attempt.
INSTANTIATE_TEST_SUITE_P(
    Variables, Refusals,
    testing::Values(
        Refusal{command("executor = \"slurm\"\n[env]\nRANK = \"0\""),
                {"job.toml:5:8: env.RANK \"0\": want WORLD_SIZE as well, or neither; leave it out: muster sets it "
                 "for each rank"}},
        Refusal{command("executor = \"slurm\"\n[env]\nRANK = \"one\"\nWORLD_SIZE = \"1\""),
                {"job.toml:5:8: env.RANK \"one\": want a whole number from 0; leave it out: muster sets it for each "
                 "rank"}},
        Refusal{command("executor = \"slurm\"\n[env]\nRANK = \"0\"\nWORLD_SIZE = \"2\"\n[resources]\nnodes = 2"),
                {"job.toml:5:8: env.RANK \"0\": want it left out: all 2 ranks would have the same RANK; muster sets it "
                 "for each"}},
        Refusal{command("executor = \"slurm\"\n[env]\nRANK = \"1\"\nWORLD_SIZE = \"1\""),
                {"job.toml:6:14: env.WORLD_SIZE \"1\": want RANK below WORLD_SIZE, not 1 of 1; leave it out: muster "
                 "sets it for each rank"}},
        Refusal{command("executor = \"slurm\"\n[env]\nMASTER_ADDR = \"n1\"\nMASTER_PORT = \"x\""),
                {"job.toml:6:15: env.MASTER_PORT \"x\": want a port from 1 to 65535; leave it out: muster chooses "
                 "one"}},
        Refusal{recipe("[env]\nWORLD_SIZE = \"1\"\n[resources]\nranks_per_node = 2"),
                {"job.toml:4:14: env.WORLD_SIZE \"1\": want LOCAL_WORLD_SIZE at most WORLD_SIZE, not 2 of 1; leave it "
                 "out: muster sets it for each rank"}},
        Refusal{recipe("[env]\nWORLD_SIZE = \"\""),
                {"job.toml:4:14: env.WORLD_SIZE: want a whole number from 1; leave it out: muster sets it for each "
                 "rank"}},
        Refusal{recipe("[env]\nLOCAL_RANK = \"2\"\n[resources]\nranks_per_node = 2"),
                {"job.toml:4:14: env.LOCAL_RANK \"2\": want LOCAL_RANK below LOCAL_WORLD_SIZE, not 2 of 2; leave it "
                 "out: muster sets it for each rank"}},
        Refusal{recipe("[env]\nNODE_RANK = \"1\""),
                {"job.toml:4:13: env.NODE_RANK \"1\": want NODE_RANK 0 where all 1 ranks are on one node, not 1; leave "
                 "it out: muster sets it for each rank"}},
        Refusal{"executor = \"local\"\n" + recipe("[env]\nMASTER_PORT = \"0\""),
                {"job.toml:5:15: env.MASTER_PORT \"0\": want a port from 1 to 65535; leave it out: muster chooses "
                 "one"}},
        Refusal{command("[env]\nMUSTER_JOB_ID = \"7\""),
                {"job.toml:4:17: env.MUSTER_JOB_ID \"7\": want another name: muster sets this one itself; leave it "
                 "out, or rename it"}},
        Refusal{command("[env]\nMUSTER_CHECKPOINT_FOLDER = \"/c\""),
                {"job.toml:4:28: env.MUSTER_CHECKPOINT_FOLDER \"/c\": want another name: muster sets this one itself; "
                 "set checkpoint.folder, or rename the variable"}},
        Refusal{recipe("[env]\nMUSTER_RUN_FILE = \"/r\""),
                {"job.toml:4:19: env.MUSTER_RUN_FILE \"/r\": want another name: muster sets this one itself; leave it "
                 "out, or rename it"}}));

TEST(JobFiles, WhatTheReadersOfRankVariablesTakeStaysTheUsers) {
  for (const auto& text :
       {command("[env]\nRANK = \"5\"\nWORLD_SIZE = \"x\""), command("executor = \"local\"\n[env]\nRANK = \"5\""),
        command("executor = \"slurm\"\n[env]\nRANK = \"0\"\nWORLD_SIZE = \"1\""),
        command("executor = \"slurm\"\n[env]\nWORLD_SIZE = \"x\"\nLOCAL_RANK = \"9\"\nMASTER_PORT = \"x\""),
        command("executor = \"slurm\"\n[env]\nMASTER_ADDR = \"n1\"\nMASTER_PORT = \"4242\""),
        recipe("[env]\nMASTER_PORT = \"x\""), recipe("[env]\nRANK = \"0\""),
        recipe("[env]\nLOCAL_RANK = \"0\"\n[resources]\nranks_per_node = 2"),
        command("[env]\nMUSTER_OF_MY_OWN = \"1\"\nMUSTER_RUN_FILE = \"/mine\"")}) {
    EXPECT_THAT(compose(JobSource::of_text(text, "job.toml", "/tmp"), {}, FileChecks::kSkip).problems,
                testing::IsEmpty())
        << text;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Together, Refusals,
    testing::Values(
        Refusal{
            recipe("batch_size = 7\n[resources]\nranks_per_node = 2"),
            {"job.toml:3:14: train.batch_size \"7\": want a multiple of 2 (micro_batch_size 1 x 2 ranks); try 6 or 8"}},
        Refusal{recipe("batch_size = 12\nmicro_batch_size = 8"),
                {"job.toml:3:14: train.batch_size \"12\": want a multiple of 8 (micro_batch_size 8 x 1 rank); try 8 or "
                 "16"}},
        Refusal{recipe("learning_rate = 1e-4\nmin_learning_rate = 1e-3"),
                {"job.toml:4:21: train.min_learning_rate \"0.001\": want at most learning_rate = 1e-04; lower it, or "
                 "leave "
                 "it out for a tenth of learning_rate"}},
        Refusal{recipe("steps = 5\nwarmup_steps = 6"),
                {"job.toml:4:16: train.warmup_steps \"6\": want at most steps = 5; lower it, or leave it out for a "
                 "tenth of "
                 "steps"}},
        Refusal{recipe("[checkpoint]\nbest = \"loss\""),
                {"job.toml:4:8: checkpoint.best \"loss\": want a series measured on held-out data; any other changes "
                 "with the batch of each step, and nearly every step would be saved as a new best; try "
                 "validation/loss or validation/perplexity or validation/legal_moves"}},
        Refusal{
            recipe("[model]\nhidden_size = 130"),
            {"job.toml:4:15: model.hidden_size \"130\": want a multiple of num_attention_heads = 4; try 128 or 136"}},
        Refusal{
            recipe("[model]\nnum_attention_heads = 3"),
            {"job.toml:4:23: model.hidden_size \"256\": want a multiple of num_attention_heads = 3; try 252 or 258"}},
        Refusal{recipe("[model]\nhidden_size = 12"),
                {"job.toml:4:15: model.hidden_size \"12\": want an even width per head for the rotary embedding, not "
                 "hidden_size / heads = 3; try 8 or 16"}},
        Refusal{recipe("[model]\nnum_key_value_heads = 3"),
                {"job.toml:4:23: model.num_key_value_heads \"3\": want a divisor of num_attention_heads = 4; leave it "
                 "out for "
                 "one per query head"}},
        Refusal{recipe("recipe = \"dino\"\n[data]\nprepared = \"/data\"\n[model]\nmlp_ratio = 2.67"),
                {"job.toml:7:13: model.mlp_ratio \"2.67\": want hidden_size x mlp_ratio to be a whole number, not 192 "
                 "x 2.67 = 512.64; try 2 or 3"}},
        Refusal{recipe("[data]\nsequence_length = 64\n[model]\nmax_position_embeddings = 32"),
                {"job.toml:4:19: data.sequence_length \"64\": want at most model.max_position_embeddings = 32; shorten "
                 "it, or "
                 "leave max_position_embeddings out"}},
        Refusal{recipe("recipe = \"classify\""),
                {"job.toml:3:10: data.prepared: want the folder that muster data prepare has written, which this "
                 "recipe trains on; add prepared = \"...\" to [data]"}},
        Refusal{recipe("[data]\nsource = \"folder\""),
                {"job.toml:4:10: data.path: want the folder of text files that source = \"folder\" reads; add path = "
                 "\"...\""}},
        Refusal{recipe("[data]\nsource = \"folder\"\npath = \"no-such\""),
                {"job.toml:5:8: data.path \"/tmp/no-such\": want a folder that exists; create it, or "
                 "correct "
                 "the path"}},
        Refusal{
            recipe("[data]\npath = \"/tmp\""),
            {"job.toml:4:8: data.path \"/tmp\": want no path with source = \"auto\"; set data.source = \"folder\", or "
             "leave the path out"}},
        Refusal{command("[liveness]\nheartbeat_interval = \"2s\""),
                {"job.toml:4:22: liveness.silent_after \"2s500ms\": want at least twice heartbeat_interval = 2s; "
                 "otherwise one late heartbeat would end the attempt"}},
        Refusal{command("[liveness]\nsilent_after_vouched = \"1s\""),
                {"job.toml:4:24: liveness.silent_after_vouched \"1s\": want at least silent_after = 2s500ms; lengthen "
                 "it, or "
                 "leave it out"}},
        Refusal{command("[requeue]\nbackoff_max = \"500ms\""),
                {"job.toml:4:15: requeue.backoff_max \"500ms\": want at least backoff_initial = 1s; lengthen it, or "
                 "leave it "
                 "out"}}));

INSTANTIATE_TEST_SUITE_P(
    Program, Refusals,
    testing::Values(
        Refusal{"name = \"a\"",
                {"job.toml:1:1: want something to run; add command = [\"python3\", \"train.py\"], or a [train] table "
                 "for the "
                 "built-in recipe"}},
        Refusal{"command = [\"true\"]",
                {"job.toml:1:1: name: want 1 to 128 letters, digits and any of . _ - = , +; add name = \"my-job\""}},
        Refusal{command("[train]\nsteps = 5"),
                {"job.toml:3:2: command: want either command or [train], not both; remove one of them"}},
        Refusal{"name = \"a\"\ncommand = []",
                {"job.toml:2:11: command \"[]\": want a program and its arguments; such as command = [\"python3\", "
                 "\"train.py\"]"}}));

TEST(JobFiles, AllProblemsAreToldAtOnceInTheOrderOfTheFile) {
  const auto file = parsed("name = \"a b\"\nnope = 1\n[train]\nsteps = 0\nlearning_rate = -1\n");
  ASSERT_THAT(file.problems, SizeIs(4));
  EXPECT_THAT(file.problems,
              ElementsAre(StartsWith("job.toml:1:8: name"), StartsWith("job.toml:2:1: nope"),
                          StartsWith("job.toml:4:9: train.steps"), StartsWith("job.toml:5:17: train.learning_rate")));
}

TEST(JobFiles, AProblemThatFollowsFromAnotherIsNotToldAsWell) {
  EXPECT_THAT(parsed(recipe("batch_size = 7\nmicro_batch_size = \"x\"\n[resources]\nranks_per_node = 2")).problems,
              ElementsAre(StartsWith("job.toml:4:20: train.micro_batch_size")));
}

TEST(JobFiles, ProblemsAreBounded) {
  std::string text = kCommand;
  for (int i = 0; i < 50; ++i) text += "key" + std::to_string(i) + " = 1\n";
  const auto file = parsed(text);
  ASSERT_THAT(file.problems, SizeIs(kMostProblems + 1));
  EXPECT_EQ(file.problems.back(), "job.toml: and 30 more problems; fix these first");
}

TEST(JobFiles, GarbageGivesOneClearLine) {
  for (const auto& text : {std::string("\x00\xff\xfe garbage \x01", 14), std::string("name = "), std::string("[[[["),
                           std::string(200'000, '['), std::string("a = 1\na = 2"),
                           std::string("\x7f"
                                       "ELF\x02\x01")}) {
    const auto file = parsed(text);
    ASSERT_THAT(file.problems, SizeIs(1));
    EXPECT_THAT(file.problems[0], StartsWith("job.toml:"));
    EXPECT_LT(file.problems[0].size(), 300U);
    EXPECT_EQ(file.problems[0].find_first_of(std::string("\0\n\x1b", 3)), std::string::npos);
  }
  EXPECT_THAT(parsed(std::string(2'000'000, 'x')).problems,
              ElementsAre("job.toml:1:1: larger than 1 MiB; this is not a job file"));
}

TEST(JobFiles, SlipsInTheSyntaxComeWithTheirRemedy) {
  const std::pair<const char*, const char*> slips[] = {
      {"name = \"a\"\nname = \"b\"", "this key is given twice; remove one of them"},
      {"[train]\n[train]", "this table is there already; put all of its keys in one place"},
      {"name = a", "a text needs quotes"},
      {"[fsdp]\nprefetch = True", "write true or false in small letters"},
      {"[train]\nsteps = 99999999999999999999999", "write a smaller number"},
      {"name = \"j\xf6\x62\"", "save the file as UTF-8"},
      {"name = \"a\ncommand = [\"true\"]", "close the quotes on the same line"},
  };
  for (const auto& [text, remedy] : slips) {
    EXPECT_THAT(parsed(text).problems, ElementsAre(AllOf(HasSubstr(": not TOML: "), HasSubstr(remedy)))) << text;
  }
}

TEST(JobFiles, MissingFilesAndFoldersAreNamed) {
  EXPECT_THAT(compose(JobSource::of_file("/no/such.toml"), {}, FileChecks::kLook).problems,
              ElementsAre(StartsWith("/no/such.toml: there is no such job file")));
  EXPECT_THAT(compose(JobSource::of_file("/tmp"), {}, FileChecks::kLook).problems,
              ElementsAre("/tmp: this is a folder; want a job file"));
}

TEST(JobFiles, RelativePathsCountFromTheFilesFolder) {
  const auto file =
      compose(JobSource::of_text(
                  "name = \"a\"\n[data]\nsource = \"folder\"\npath = \"text/../words\"\ncache_folder = \"/var/cache\"\n"
                  "[checkpoint]\nfolder = \"out\"",
                  "job.toml", "/home/someone/jobs"),
              {}, FileChecks::kSkip);
  ASSERT_THAT(file.problems, IsEmpty());
  EXPECT_EQ(test::text(file.spec, "data.path"), "/home/someone/jobs/words");
  EXPECT_EQ(test::text(file.spec, "data.cache_folder"), "/var/cache");
  EXPECT_EQ(file.spec.checkpoint().folder(), "/home/someone/jobs/out");
  EXPECT_EQ(file.spec.working_folder(), "/home/someone/jobs");
}

// TOML is UTF-8, so the parser checks the rest of the file.
TEST(JobFiles, AFolderWhoseNameIsNotUtf8IsNamedWithTheRemedy) {
  const auto text = recipe("[data]\nsource = \"folder\"\npath = \"texts\"\n");
  const auto in = [&](const char* folder) {
    return compose(JobSource::of_text(text, "job.toml", folder), {}, FileChecks::kSkip).problems;
  };
  const std::string want = "want a path in UTF-8; rename the folder or file, or choose another path";
  EXPECT_THAT(in("/tmp/Mod\xE8le"), ElementsAre("job.toml:1:1: working_folder \"/tmp/Mod\\xE8le\": " + want,
                                                "job.toml:5:8: data.path \"/tmp/Mod\\xE8le/texts\": " + want));
  EXPECT_THAT(in("/tmp/Modèle"), IsEmpty());
}

TEST(JobFiles, EveryKindOfValueArrives) {
  const auto file = parsed(R"(
name = "all-kinds.v1_2"
[resources]
ranks_per_node = 2
time_limit = "1h30m"
[data]
max_bytes = "2MiB"
[train]
learning_rate = 1
warmup_steps = 0
schedule = "linear"
[fsdp]
prefetch = false
[requeue]
max_failed = 0
[env]
OMP_NUM_THREADS = "1"
EMPTY = ""
)");
  ASSERT_THAT(file.problems, IsEmpty());
  EXPECT_EQ(file.spec.name(), "all-kinds.v1_2");
  EXPECT_EQ(file.spec.resources().time_limit_ms(), 5'400'000);
  EXPECT_EQ(test::whole(file.spec, "data.max_bytes"), 2 << 20);
  EXPECT_EQ(test::real(file.spec, "train.learning_rate"), 1);
  EXPECT_TRUE(test::has(file.spec, "train.warmup_steps"));
  EXPECT_EQ(test::whole(file.spec, "train.warmup_steps"), 0);
  EXPECT_EQ(test::text(file.spec, "train.schedule"), "linear");
  EXPECT_EQ(file.spec.recipe().kind(), "causal_lm");
  EXPECT_FALSE(test::flag(file.spec, "fsdp.prefetch"));
  EXPECT_EQ(file.spec.requeue().max_failed(), 0U);
  EXPECT_EQ(file.spec.env().at("OMP_NUM_THREADS"), "1");
  EXPECT_EQ(file.spec.env().at("EMPTY"), "");
}

TEST(Set, ReplacesAndAddsValuesOfEveryKind) {
  const auto file =
      parsed(recipe("steps = 10"), {"train.steps=20", "train.learning_rate = 1e-2", "name=123",
                                    "resources.time_limit=12h", "data.source=fixture", "data.max_bytes=1MiB", "env.A=1",
                                    "fsdp.prefetch=false", "train.schedule=\"linear\""});
  ASSERT_THAT(file.problems, ElementsAre(StartsWith("--set train.learning_rate = 1e-2: unknown key")));
  const auto fine =
      parsed(recipe("steps = 10"), {"train.steps=20", "train.learning_rate=1e-2", "name=123",
                                    "resources.time_limit=12h", "data.source=fixture", "env.A=1", "data.max_bytes=1MiB",
                                    "fsdp.prefetch=false", "train.schedule=\"linear\""});
  ASSERT_THAT(fine.problems, IsEmpty());
  EXPECT_EQ(test::whole(fine.spec, "train.steps"), 20);
  EXPECT_EQ(test::real(fine.spec, "train.learning_rate"), 1e-2);
  EXPECT_EQ(fine.spec.name(), "123");
  EXPECT_EQ(fine.spec.resources().time_limit_ms(), 43'200'000);
  EXPECT_EQ(test::text(fine.spec, "data.source"), "fixture");
  EXPECT_EQ(fine.spec.env().at("A"), "1");
  EXPECT_FALSE(test::flag(fine.spec, "fsdp.prefetch"));
  EXPECT_EQ(test::text(fine.spec, "train.schedule"), "linear");
  EXPECT_THAT(parsed(kCommand, {"command=[\"echo\", \"a b\"]"}).spec.command().argv(), ElementsAre("echo", "a b"));
}

TEST(Set, OfAKeyItsLastPartIsEnoughWhereNoOtherEndsTheSame) {
  const auto file = parsed(kRecipe, {"steps=3", "nodes=2", "ranks_per_node=4", "source=fixture"});
  ASSERT_THAT(file.problems, IsEmpty());
  EXPECT_EQ(test::whole(file.spec, "train.steps"), 3);
  EXPECT_EQ(file.spec.resources().nodes(), 2U);
  EXPECT_EQ(test::text(file.spec, "data.source"), "fixture");
  EXPECT_EQ(parsed(kRecipe, {"name=b"}).spec.name(), "b");
  EXPECT_THAT(parsed(kRecipe, {"stepz=3"}).problems,
              ElementsAre("--set stepz=3: unknown key, did you mean train.steps"));
  EXPECT_THAT(parsed(kRecipe, {"steps=x"}).problems,
              ElementsAre("--set steps=x: want a whole number from 1 to 4294967295"));
}

TEST(Append, AddsWordsToACommandAndToNothingElse) {
  const Override more{"-- --lr 3e-4", "command", std::nullopt, {"--lr", "3e-4"}};
  const auto command = compose(JobSource::of_text(kCommand, "job.toml", "/tmp"), {more}, FileChecks::kLook);
  ASSERT_THAT(command.problems, IsEmpty());
  EXPECT_THAT(command.spec.command().argv(), ElementsAre("true", "--lr", "3e-4"));
  EXPECT_THAT(compose(JobSource::of_text(kRecipe, "job.toml", "/tmp"), {more}, FileChecks::kLook).problems,
              ElementsAre("-- --lr 3e-4: want a job file with a command to add these words to; set a recipe's keys "
                          "with --set train.steps=10"));
}

TEST(Set, ErrorsNameTheOption) {
  const auto set = [](const std::string& assignment) {
    return parsed(recipe("batch_size = 8"), {assignment}).problems;
  };
  EXPECT_THAT(set("train.learing_rate=1"),
              ElementsAre("--set train.learing_rate=1: unknown key, did you mean train.learning_rate"));
  EXPECT_THAT(set("train.steps=0"), ElementsAre("--set train.steps=0: want a whole number from 1 to 4294967295"));
  EXPECT_THAT(set("train.steps=many"), ElementsAre("--set train.steps=many: want a whole number from 1 to 4294967295"));
  EXPECT_THAT(set("train.steps"), ElementsAre("--set train.steps: want key=value"));
  EXPECT_THAT(set("=5"), ElementsAre("--set =5: unknown key; muster submit --help lists all"));
  EXPECT_THAT(set("train.steps=1\nseed = 2"),
              ElementsAre(StartsWith("--set train.steps=1 seed = 2: want a whole number")));
  EXPECT_THAT(set("train.batch_size=7"), IsEmpty());
  EXPECT_THAT(
      set("resources.ranks_per_node=3"),
      ElementsAre("job.toml:3:14: train.batch_size \"8\": want a multiple of 3 (micro_batch_size 1 x 3 ranks); try 6 "
                  "or 9"));
}

TEST(Examples, AreValid) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(::test::source_folder() + "/examples")) {
    if (entry.path().extension() != ".toml") continue;
    ++count;
    EXPECT_THAT(compose(JobSource::of_file(entry.path()), {}, FileChecks::kLook).problems, IsEmpty()) << entry.path();
  }
  EXPECT_GE(count, 4);
}

TEST(Examples, TheMultiNodeFineTuneAccumulatesItsTotalBatch) {
  const auto file =
      compose(JobSource::of_file(::test::source_folder() + "/examples/finetune-multinode.toml"), {}, FileChecks::kLook);
  EXPECT_EQ(world_size(file.spec), 8U);
  EXPECT_EQ(test::whole(file.spec, "train.batch_size") /
                (test::whole(file.spec, "train.micro_batch_size") * static_cast<std::int64_t>(world_size(file.spec))),
            4);
  EXPECT_EQ(file.spec.resources().gpus_per_rank(), 1U);
}

TEST(Examples, TheMultiNodeFineTuneIsTriedSmallByAFewSettings) {
  std::vector<Override> overrides;
  for (const char* set : {"executor=local", "resources.nodes=1", "resources.gpus_per_rank=0", "train.batch_size=32",
                          "train.precision=fp32"}) {
    overrides.push_back(override_of_set(set));
  }
  const auto path = ::test::source_folder() + "/examples/finetune-multinode.toml";
  EXPECT_THAT(compose(JobSource::of_file(path), overrides, FileChecks::kLook).problems, IsEmpty());
}

TEST(Examples, TheSweepIsSixJobs) {
  const auto source = JobSource::of_file(::test::source_folder() + "/examples/sweep.toml");
  const auto sweep = compose_sweep(source, {}, {}, FileChecks::kLook);
  EXPECT_THAT(sweep.problems, IsEmpty());
  EXPECT_THAT(sweep.specs, SizeIs(6));
  EXPECT_EQ(sweep.parallel, 2U);
}

TEST(JobFiles, ASlipInTomlIsToldInOurWords) {
  for (const auto& [line, said] :
       {std::pair("hold = yes", "8: not TOML: this is not a value; a text needs quotes"),
        {"hold =", "7: not TOML: there is no value after =; write one, a text in quotes"},
        {"hold", "5: not TOML: there is no = after the key; write key = value"},
        {"[resources", "11: not TOML: the table's name does not end; write ] after it"},
        {"hold = 12h", "10: not TOML: this is not a number; a text such as \"12h\" needs quotes"},
        {"hold = .5", "8: not TOML: a number needs digits on both sides of its point"},
        {"hold = 01", "10: not TOML: a number can't begin with 0"},
        {"hold = 1 2", "10: not TOML: there is more text after the value"},
        {"after = [\"1\"", "14: not TOML: the array does not end"},
        {"after = [1 2]", "12: not TOML: a comma or ] is missing in the array"},
        {"name = \"b\"", "8: not TOML: this key is given twice"},
        {"env = { A = \"b\"", "16: not TOML: the { } does not end on its line"},
        {"working_folder = \"\\d\"", "20: not TOML: the backslash begins no known escape"}}) {
    const auto problems = parsed(kCommand + std::string(line) + "\n").problems;
    ASSERT_THAT(problems, SizeIs(1)) << line;
    EXPECT_THAT(problems[0], StartsWith(std::string("job.toml:3:") + said)) << line;
    EXPECT_THAT(problems[0], testing::Not(HasSubstr("parsing"))) << line;
  }
}

TEST(Overrides, AreThemselvesThePlaceOfWhatTheyMakeWrong) {
  EXPECT_THAT(
      parsed(std::string(kCommand), {"train.steps=10"}).problems,
      ElementsAre("--set train.steps=10: this job runs a command, and recipes alone have this key; set a variable "
                  "that the program reads, such as env.STEPS"));
  EXPECT_THAT(parsed(std::string(kCommand), {"model.hidden_size=16", "model.famly=x"}).problems,
              testing::UnorderedElementsAre(StartsWith("--set model.famly=x: unknown key"),
                                            StartsWith("--set model.hidden_size=16: this job runs a command")));
}

}  // namespace
}  // namespace jobfile
