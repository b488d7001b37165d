// Real muster-worker processes over sockets, on the text built into muster-data.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <thread>
#include <tuple>

#include "tests/manifest_text.h"
#include "tests/places.h"
#include "tests/worker/temporary_folder.h"
#include "tests/worker/worker_process.h"

namespace worker::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// A run that takes a few milliseconds a step.
struct TinyRun {
  int steps = 24;
  int batch_size = 8;
  int micro_batch_size = 2;
  int step_delay_ms = 0;
  int every_steps = 0;
  int keep = 3;
  double learning_rate = 3e-3;
  std::string checkpoints = "checkpoints";
  std::string extra_train = {};  ///< more members of "train", each with a leading comma
  std::string fsdp = {};         ///< the members of "fsdp"
  int seed = 0;
  int sequence_length = 32;
  std::string model = R"("hidden_size":32,"intermediate_size":48,"num_hidden_layers":2,"num_attention_heads":4,
                         "num_key_value_heads":2,"max_position_embeddings":64,"tie_word_embeddings":true)";
  std::string source = R"("source":"fixture")";
  std::string cache = "cache";  ///< empty: the default folder
  std::string best = {};

  std::string json(const TemporaryFolder& folder) const {
    std::ostringstream out;
    out << R"({"format":1,"name":"test","recipe":"causal_lm","model":{)" << model << R"(},"data":{)" << source
        << R"(,"sequence_length":)" << sequence_length << R"(,"cache_folder":")"
        << (cache.empty() ? "" : (folder / cache).native()) << R"("},"train":{"steps":)" << steps << R"(,"batch_size":)"
        << batch_size << R"(,"micro_batch_size":)" << micro_batch_size << R"(,"warmup_steps":3,"learning_rate":)"
        << learning_rate << R"(,"min_learning_rate":0,"seed":)" << seed << R"(,"step_delay_ms":)" << step_delay_ms
        << extra_train << R"(},"fsdp":{)" << fsdp << R"(},"checkpoint":{"folder":")" << (folder / checkpoints).native()
        << R"(","every_steps":)" << every_steps << R"(,"keep":)" << keep << R"(,"best":")" << best << "\"}}";
    return out.str();
  }
};

std::vector<std::string> values(const std::vector<Line>& lines, const std::string& key) {
  std::vector<std::string> out;
  for (const auto& line : lines) out.push_back(line.at(key));
  return out;
}

std::vector<double> losses(const Ranks& ranks, int rank = 0) {
  std::vector<double> out;
  for (const auto& text : values(ranks.lines(rank, "step"), "loss")) out.push_back(std::stod(text));
  return out;
}

std::string step_folder(int step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%08d", step);
  return name;
}

/// The safetensors files of a checkpoint, by name.
std::map<std::string, std::string> tensors_of(const std::filesystem::path& checkpoint) {
  std::map<std::string, std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint)) {
    if (entry.path().extension() == ".safetensors") out[entry.path().filename().native()] = read_file(entry.path());
  }
  return out;
}

int checkpoints_in(const std::filesystem::path& folder) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    count += entry.path().filename().native().starts_with("step-") ? 1 : 0;
  }
  return count;
}

TEST(Worker, TwoRanksLearnFromText) {
  const TemporaryFolder folder;
  Ranks ranks(folder.path(), TinyRun{.steps = 60, .extra_train = R"(,"validation_every_steps":30)"}.json(folder), {});
  ASSERT_THAT(ranks.wait(), Each(0)) << ranks.log(0) << ranks.log(1);
  const auto loss = losses(ranks);
  ASSERT_EQ(loss.size(), 60u);
  EXPECT_NEAR(loss.front(), std::log(257.0), 0.2);
  EXPECT_LT(loss.back(), loss.front() - 1.5);
  EXPECT_EQ(loss, losses(ranks, 1));
  const auto steps = ranks.lines(0, "step");
  EXPECT_EQ(steps[28].count("validation/loss"), 0u);
  EXPECT_LT(std::stod(steps[59].at("validation/loss")), std::stod(steps[29].at("validation/loss")));
  EXPECT_NEAR(std::stod(steps[59].at("validation/perplexity")), std::exp(std::stod(steps[59].at("validation/loss"))),
              0.01);
  for (const char* key : {"tokens_per_s", "step_ms", "memory_bytes", "memory_peak_bytes", "bytes_communicated"}) {
    EXPECT_GT(std::stod(steps.back().at(key)), 0) << key;
  }
  EXPECT_THAT(values(ranks.lines(1, "section"), "section"),
              ElementsAre("init", "data", "init", "step", "evaluate", "step", "evaluate", "step", "checkpoint", "step",
                          "done"));
  EXPECT_THAT(values(ranks.lines(0, "status"), "status"),
              ElementsAre(::testing::StartsWith("leaving with exit code 0")));
}

// Goal: a stop loses no work and does not change the result.
// Method: one run without a break; and one in which a single rank gets SIGTERM, resumed with the same run file.
TEST(Worker, ARunThatWasStoppedAndResumedEqualsOneThatWasNot) {
  const TemporaryFolder folder;
  TinyRun whole{.step_delay_ms = 20, .checkpoints = "whole"}, broken{.step_delay_ms = 20, .checkpoints = "broken"};
  Ranks reference(folder.path(), whole.json(folder), {.label = "whole"});
  ASSERT_THAT(reference.wait(), Each(0)) << reference.log(0);

  Ranks first(folder.path(), broken.json(folder), {.label = "broken"});
  ASSERT_TRUE(first.reached(0, 6));
  first.rank(1).signal(SIGTERM);
  ASSERT_THAT(first.wait(), Each(99)) << first.log(0) << first.log(1);
  const auto saved = values(first.lines(0, "checkpoint"), "step");
  ASSERT_EQ(saved.size(), 1u);
  EXPECT_EQ(values(first.lines(1, "checkpoint"), "step"), saved);
  EXPECT_EQ(first.lines(0, "step").back().at("step"), saved[0]);
  EXPECT_EQ(first.lines(1, "step").back().at("step"), saved[0]);
  ASSERT_LT(std::stoi(saved[0]), broken.steps);

  Ranks second(folder.path(), broken.json(folder), {.label = "broken"});
  ASSERT_THAT(second.wait(), Each(0)) << second.log(0);
  EXPECT_THAT(values(second.lines(1, "resumed"), "resumed"), ElementsAre("0", saved[0]));
  EXPECT_EQ(losses(second), losses(reference));
  EXPECT_EQ(values(second.lines(0, "step"), "grad_norm"), values(reference.lines(0, "step"), "grad_norm"));
  const auto expected = tensors_of(folder / "whole" / step_folder(whole.steps));
  EXPECT_EQ(expected.size(), 2u);
  EXPECT_TRUE(tensors_of(folder / "broken" / step_folder(broken.steps)) == expected);
}

/// Prepared documents of the text that is built into muster-data.
std::string packed_documents(const TemporaryFolder& folder) {
  Process data(::test::built_program("muster-data"),
               {"prepare", "--from", "fixture", "--to", (folder / "data").native()}, {}, folder / "data.log");
  EXPECT_EQ(data.wait(60s), 0) << read_file(folder / "data.log");
  return R"("packing":"documents","prepared":")" + (folder / "data").native() + "\"";
}

TEST(Worker, GoesOnWithTheSameBitsAfterAKillWhateverSavesMemory) {
  const std::string blocks = R"("activation_checkpointing":"block")";
  struct Way {
    std::string train, fsdp;
    bool packs = false;
  };
  for (const auto& [train, fsdp, packs] : std::vector<Way>{{R"(,"moments":"bf16")", ""},
                                                           {R"(,"moments":"int8")", ""},
                                                           {R"(,"optimizer":"adafactor")", ""},
                                                           {R"(,"optimizer":"muon")", ""},
                                                           {"", blocks + R"(,"activation_checkpointing_keeps":"both")"},
                                                           {"", blocks, /*packs=*/true}}) {
    SCOPED_TRACE(train + fsdp + (packs ? ", packed documents" : ""));
    const TemporaryFolder folder;
    TinyRun whole{.steps = 9, .every_steps = 3, .checkpoints = "whole", .extra_train = train, .fsdp = fsdp};
    if (packs) whole.source = packed_documents(folder);
    Ranks reference(folder.path(), whole.json(folder), {.label = "whole"});
    ASSERT_THAT(reference.wait(), Each(0)) << reference.log(0);
    TinyRun broken = whole;
    broken.checkpoints = "broken";
    broken.step_delay_ms = 250;
    Ranks first(folder.path(), broken.json(folder), {.label = "broken"});
    ASSERT_TRUE(first.reached(0, 5));
    first.rank(1).signal(SIGKILL);
    first.wait();
    Ranks second(folder.path(), broken.json(folder), {.label = "broken"});
    ASSERT_THAT(second.wait(), Each(0)) << second.log(0);
    EXPECT_THAT(values(second.lines(1, "resumed"), "resumed"), ElementsAre("0", ::testing::AnyOf("3", "6")));
    EXPECT_TRUE(tensors_of(folder / "broken" / step_folder(9)) == tensors_of(folder / "whole" / step_folder(9)));
  }
}

// The base is no part of a checkpoint: each attempt quantises it again.
TEST(Worker, GoesOnWithTheSameBitsAfterAKillBesideAQuantisedBase) {
  const TemporaryFolder folder;
  TinyRun of_base{.steps = 3, .checkpoints = "of-base"};
  of_base.extra_train = R"(,"export_folder":")" + (folder / "base").native() + "\"";
  Ranks base(folder.path(), of_base.json(folder), {.world_size = 1, .label = "base"});
  ASSERT_THAT(base.wait(), Each(0)) << base.log(0);
  for (const char* format : {"nf4", "int8"}) {
    SCOPED_TRACE(format);
    const auto named = [&](const char* what) { return std::string(what) + format; };
    TinyRun whole{.steps = 9, .every_steps = 3, .checkpoints = named("whole-")};
    whole.extra_train = R"(,"lora_rank":4,"quantize_base":")" + std::string(format) + "\"";
    whole.model = R"("pretrained":")" + (folder / "base").native() + "\"";
    Ranks reference(folder.path(), whole.json(folder), {.label = named("whole-")});
    ASSERT_THAT(reference.wait(), Each(0)) << reference.log(0);
    TinyRun broken = whole;
    broken.checkpoints = named("broken-");
    broken.step_delay_ms = 250;
    Ranks first(folder.path(), broken.json(folder), {.label = named("broken-")});
    ASSERT_TRUE(first.reached(0, 5)) << first.log(0);
    first.rank(1).signal(SIGKILL);
    first.wait();
    Ranks second(folder.path(), broken.json(folder), {.label = named("broken-")});
    ASSERT_THAT(second.wait(), Each(0)) << second.log(0);
    EXPECT_THAT(values(second.lines(1, "resumed"), "resumed"), ElementsAre("0", ::testing::AnyOf("3", "6")));
    const auto expected = tensors_of(folder / whole.checkpoints / step_folder(9));
    EXPECT_FALSE(expected.empty());
    EXPECT_TRUE(tensors_of(folder / broken.checkpoints / step_folder(9)) == expected);
    const auto all = losses(reference), rest = losses(second);
    EXPECT_TRUE(std::equal(rest.rbegin(), rest.rbegin() + 3, all.rbegin()));
  }
}

TEST(Worker, ASecondTermLeavesAtOnceWithoutASave) {
  const TemporaryFolder folder;
  Ranks ranks(folder.path(), TinyRun{.step_delay_ms = 10'000}.json(folder), {});
  ASSERT_TRUE(ranks.reached(0, 1));
  ranks.rank(0).signal_and_wait(SIGTERM);
  std::this_thread::sleep_for(600ms);  // an earlier one would count as the same request
  ranks.rank(0).signal(SIGTERM);
  EXPECT_EQ(ranks.wait_rank(0, 8s), 99) << "it waited for the end of its step";
  EXPECT_EQ(checkpoints_in(folder / "checkpoints"), 0);
  EXPECT_NE(ranks.wait_rank(1, 60s), -1);
}

TEST(Worker, ARankThatIsKilledTakesTheOthersAlong) {
  const TemporaryFolder folder;
  for (const int victim : {0, 1}) {
    const std::string label = "victim" + std::to_string(victim);
    Ranks ranks(folder.path(), TinyRun{.steps = 100000, .step_delay_ms = 5}.json(folder), {.label = label});
    ASSERT_TRUE(ranks.reached(0, 3));
    ranks.rank(victim).signal(SIGKILL);
    EXPECT_EQ(ranks.wait_rank(victim, 5s), 128 + SIGKILL);
    EXPECT_EQ(ranks.wait_rank(1 - victim, 10s), 1) << ranks.log(1 - victim);
    EXPECT_THAT(ranks.log(1 - victim), HasSubstr("error: "));
    EXPECT_THAT(values(ranks.lines(1 - victim, "status"), "status"),
                ElementsAre(::testing::StartsWith("leaving with exit code 1")));
  }
}

TEST(Worker, TheLossHardlyDependsOnHowTheBatchIsSplit) {
  const TemporaryFolder folder;
  std::vector<std::vector<double>> runs;
  for (const auto& [world_size, micro] : {std::pair{1, 8}, {1, 2}, {2, 2}, {4, 2}}) {
    const std::string label = std::to_string(world_size) + "x" + std::to_string(micro);
    const TinyRun run{
        .steps = 10, .micro_batch_size = micro, .checkpoints = label, .extra_train = R"(,"validation_every_steps":5)"};
    Ranks ranks(folder.path(), run.json(folder), {.world_size = world_size, .label = label});
    ASSERT_THAT(ranks.wait(), Each(0)) << ranks.log(0);
    runs.push_back(losses(ranks));
    const auto steps = ranks.lines(0, "step");
    runs.back().push_back(std::stod(steps.back().at("validation/loss")));
    for (const auto& norm : values(steps, "grad_norm")) runs.back().push_back(std::stod(norm));
  }
  for (std::size_t run = 1; run < runs.size(); ++run) {
    for (std::size_t i = 0; i < runs[0].size(); ++i) {
      EXPECT_NEAR(runs[run][i], runs[0][i], 1e-5 * runs[0][i]) << "run " << run << ", value " << i;
    }
  }
}

TEST(Worker, GoesOnAtAnotherWorldSize) {
  const TemporaryFolder folder;
  const TinyRun run{.steps = 16, .checkpoints = "whole"};
  Ranks reference(folder.path(), run.json(folder), {.world_size = 1, .label = "whole"});
  ASSERT_THAT(reference.wait(), Each(0));
  TinyRun broken{.steps = 16, .step_delay_ms = 30, .checkpoints = "broken"};
  Ranks two(folder.path(), broken.json(folder), {.world_size = 2, .label = "broken"});
  ASSERT_TRUE(two.reached(0, 5));
  two.rank(0).signal(SIGUSR2);
  ASSERT_THAT(two.wait(), Each(99)) << two.log(0);
  Ranks one(folder.path(), broken.json(folder), {.world_size = 1, .label = "broken"});
  ASSERT_THAT(one.wait(), Each(0)) << one.log(0);
  const auto expected = losses(reference), got = losses(one);
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-5 * expected[i]);
}

TEST(Worker, Bf16LearnsToo) {
  const TemporaryFolder folder;
  Ranks ranks(folder.path(), TinyRun{.steps = 30, .extra_train = R"(,"precision":"bf16")"}.json(folder), {});
  ASSERT_THAT(ranks.wait(), Each(0)) << ranks.log(0);
  EXPECT_THAT(ranks.log(0), Not(HasSubstr("warning")));
  EXPECT_LT(losses(ranks).back(), losses(ranks).front() - 0.5);
}

TEST(Worker, Fp16LearnsTooAndContinuesBitForBit) {
  const TemporaryFolder folder;
  TinyRun run{.steps = 30, .checkpoints = "whole", .extra_train = R"(,"precision":"fp16")"};
  Ranks whole(folder.path(), run.json(folder), {.world_size = 2, .label = "whole"});
  ASSERT_THAT(whole.wait(), Each(0)) << whole.log(0);
  EXPECT_THAT(whole.log(0), HasSubstr("warning: fp16 on most CPUs is several times slower than fp32"));
  EXPECT_LT(losses(whole).back(), losses(whole).front() - 0.5);
  const auto scales = values(whole.lines(0, "step"), "loss_scale");
  EXPECT_GE(std::stod(scales.back()), 1);

  run.step_delay_ms = 30;
  run.checkpoints = "broken";
  Ranks broken(folder.path(), run.json(folder), {.world_size = 2, .label = "broken"});
  ASSERT_TRUE(broken.reached(0, 5));
  broken.rank(0).signal(SIGUSR2);
  ASSERT_THAT(broken.wait(), Each(99)) << broken.log(0);
  Ranks rest(folder.path(), run.json(folder), {.world_size = 2, .label = "broken"});
  ASSERT_THAT(rest.wait(), Each(0)) << rest.log(0);
  EXPECT_EQ(losses(rest), losses(whole));
  EXPECT_EQ(values(rest.lines(0, "step"), "loss_scale"), scales);
}

TEST(Worker, SavesOnScheduleAndKeepsTheNewest) {
  const TemporaryFolder folder;
  Ranks ranks(folder.path(), TinyRun{.steps = 11, .every_steps = 2, .keep = 2}.json(folder), {});
  ASSERT_THAT(ranks.wait(), Each(0)) << ranks.log(0);
  EXPECT_THAT(values(ranks.lines(0, "checkpoint"), "step"), ElementsAre("2", "4", "6", "8", "10", "11"));
  EXPECT_EQ(checkpoints_in(folder / "checkpoints"), 2);
  EXPECT_TRUE(std::filesystem::exists(folder / "checkpoints" / step_folder(11) / "manifest.json"));
  // A run that has done all its steps is started again. Nothing is left to do, which is a success.
  Ranks again(folder.path(), TinyRun{.steps = 11, .every_steps = 2, .keep = 2}.json(folder), {.label = "again"});
  ASSERT_THAT(again.wait(), Each(0)) << again.log(0);
  EXPECT_TRUE(again.lines(0, "step").empty());
}

TEST(Worker, TellsWhereItsBestCheckpointIs) {
  const TemporaryFolder folder;
  const TinyRun run{.steps = 6, .extra_train = R"(,"validation_every_steps":2)", .best = "validation/loss"};
  Ranks ranks(folder.path(), run.json(folder), {});
  ASSERT_THAT(ranks.wait(), Each(0)) << ranks.log(0);
  for (const int rank : {0, 1}) {
    EXPECT_THAT(ranks.log(rank),
                ContainsRegex("\\] best validation/loss [0-9.]+ at step 2 \\(kept in .*/step-00000002\\)\n"));
  }
  TinyRun wrong = run;
  wrong.best = "loss";
  Ranks refused(folder.path(), wrong.json(folder), {.label = "refused"});
  EXPECT_THAT(refused.wait(), Each(93));
  EXPECT_THAT(refused.log(1), HasSubstr("checkpoint.best = \"loss\": want a series measured on held-out data"));
}

TEST(Worker, ATornCheckpointIsPassedOver) {
  const TemporaryFolder folder;
  const TinyRun run{.steps = 8, .every_steps = 4};
  Ranks first(folder.path(), run.json(folder), {.label = "first"});
  ASSERT_THAT(first.wait(), Each(0));
  std::filesystem::resize_file(folder / "checkpoints" / step_folder(8) / "rank-00001-of-00002.safetensors", 100);
  Ranks second(folder.path(), run.json(folder), {.label = "second"});
  ASSERT_THAT(second.wait(), Each(0)) << second.log(0);
  EXPECT_THAT(values(second.lines(0, "resumed"), "resumed"), ElementsAre("4"));
  EXPECT_THAT(second.log(0), HasSubstr("passed over a checkpoint: "));

  // All checkpoints are damaged. Starting at step 0 would discard the job's work without asking.
  for (const int step : {4, 8}) std::filesystem::remove(folder / "checkpoints" / step_folder(step) / "manifest.json");
  Ranks third(folder.path(), run.json(folder), {.label = "third"});
  EXPECT_THAT(third.wait(), Each(93)) << third.log(0);
  EXPECT_TRUE(third.lines(0, "step").empty());
  EXPECT_THAT(third.log(0), HasSubstr("can be read (step-00000008: no manifest.json); restore one, or move them away"));
}

// Goal: a rank that died before the ranks had met is known to those that wait, though nothing but they could tell.
TEST(Worker, WithoutAControllerNamesTheRankThatDoesNotCome) {
  const TemporaryFolder folder;
  write_file(folder / "run.json", TinyRun{}.json(folder));
  const test::ClaimedPort first_port, second_port;
  const auto start = [&](int rank, const test::ClaimedPort& port) {
    const auto number = std::to_string(rank);
    return std::make_unique<Process>(
        ::test::built_program("muster-worker"), std::vector<std::string>{"--run-file", (folder / "run.json").native()},
        std::map<std::string, std::string>{{"RANK", number},
                                           {"LOCAL_RANK", number},
                                           {"NODE_RANK", "0"},
                                           {"WORLD_SIZE", "2"},
                                           {"LOCAL_WORLD_SIZE", "2"},
                                           {"MASTER_ADDR", "127.0.0.1"},
                                           {"MASTER_PORT", std::to_string(port.number())},
                                           {"MUSTER_METRICS_FILE", (folder / (number + ".jsonl")).native()}},
        folder / (number + ".log"));
  };
  // Two runs: in one rank 1 does not come, in the other rank 0.
  const auto zero = start(0, first_port), one = start(1, second_port);
  const auto says = [&](int rank, const std::string& text) {
    const auto limit = std::chrono::steady_clock::now() + 60s;
    const auto log = folder / (std::to_string(rank) + ".log");
    while (read_file(log).find(text) == std::string::npos && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(20ms);
    EXPECT_THAT(read_file(log), HasSubstr(text));
  };
  says(0, "[rank 0] waiting: rank 1 has not come for 1");
  says(1, "[rank 1] waiting: rank 0 has not come for 10 s: it serves no rendezvous store at 127.0.0.1:" +
              std::to_string(second_port.number()));
}

// A rank of 512 has some 1,500 connections, and Slurm's usual limit is 1,024.
TEST(Worker, RaisesItsLimitOfOpenFilesAsFarAsItMay) {
  const TemporaryFolder folder;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit low{64, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  Ranks ranks(folder.path(), TinyRun{.steps = 1000, .step_delay_ms = 20}.json(folder), {.world_size = 1});
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_TRUE(ranks.reached(0, 1)) << ranks.log(0);
  rlimit of_rank{};
  ASSERT_EQ(::prlimit(ranks.rank(0).id(), RLIMIT_NOFILE, nullptr, &of_rank), 0);
  EXPECT_EQ(of_rank.rlim_cur, before.rlim_max);
  EXPECT_EQ(of_rank.rlim_max, before.rlim_max);
  ranks.rank(0).signal(SIGKILL);
  ranks.wait();
}

/// Replaces `from`, which occurs once in the manifest, whose checksum stays right.
void edit(const std::filesystem::path& path, const std::string& from, const std::string& to) {
  std::string text = read_file(path);
  const auto at = text.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  EXPECT_EQ(text.find(from, at + 1), std::string::npos) << from;
  test::write_manifest(path, text.replace(at, from.size(), to));
}

// Goal: a whole checkpoint that training cannot continue from ends the job with a remedy, not with endless attempts.
TEST(Worker, ACheckpointThatDoesNotSayWhereToGoOnIsNeverRequeued) {
  const TemporaryFolder folder;
  const TinyRun run{.steps = 8, .every_steps = 4};
  ASSERT_THAT(Ranks(folder.path(), run.json(folder), {.label = "first"}).wait(), Each(0));
  const auto newest = folder / "checkpoints" / step_folder(8);
  const std::string good = read_file(newest / "manifest.json");
  const std::tuple<const char*, const char*, const char*> damages[] = {
      {"\"data\":", "\"date\":", "no key \"data\""},
      {"\"samples\": 64", "\"samples\": \"64\"", "integer"},
      {"\"samples\": 64", "\"samples\": -64", "samples is -64"},
      {"\"order\": 2", "\"order\": \"2\"", "integer"},
  };
  for (const auto& [from, to, says] : damages) {
    write_file(newest / "manifest.json", good);
    edit(newest / "manifest.json", from, to);
    Ranks ranks(folder.path(), run.json(folder), {.label = "damaged"});
    EXPECT_THAT(ranks.wait(), Each(93)) << ranks.log(0) << ranks.log(1);
    EXPECT_THAT(ranks.log(0), HasSubstr(says));
    EXPECT_THAT(ranks.log(1), HasSubstr((newest / "manifest.json").native() + " does not say where to go on"));
    EXPECT_THAT(ranks.log(1), HasSubstr("move " + newest.native() + " away to go on from the checkpoint before it"));
  }
  std::filesystem::rename(newest, folder / "away");
  Ranks again(folder.path(), run.json(folder), {.label = "again"});
  ASSERT_THAT(again.wait(), Each(0)) << again.log(0);
  EXPECT_THAT(values(again.lines(0, "resumed"), "resumed"), ElementsAre("4"));
}

// Goal: after the program was set back, the job does not lose the steps that the newer program has saved.
TEST(Worker, ACheckpointOfALaterProgramEndsTheRunAndIsNotPassedOver) {
  const TemporaryFolder folder;
  const TinyRun run{.steps = 8, .every_steps = 4};
  ASSERT_THAT(Ranks(folder.path(), run.json(folder), {.label = "first"}).wait(), Each(0));
  const auto newest = folder / "checkpoints" / step_folder(8);
  edit(newest / "manifest.json", "\"version\": 4", "\"version\": 5");
  Ranks ranks(folder.path(), run.json(folder), {.label = "again"});
  EXPECT_THAT(ranks.wait(), Each(93)) << ranks.log(0);
  for (const int rank : {0, 1}) {
    EXPECT_THAT(ranks.log(rank), HasSubstr(newest.native() + " has format version 5, and this program reads versions 1 "
                                                             "to 4: a later program has saved it; run that program"));
  }
  EXPECT_TRUE(ranks.lines(0, "step").empty());
}

/// A text of `lines` lines, the same every time.
std::string words(int lines) {
  std::string out;
  for (int i = 0; i < lines; ++i) out += "line " + std::to_string(i * i % 97) + " of the text\n";
  return out;
}

std::string folder_source(const TemporaryFolder& folder) {
  return R"("source":"folder","path":")" + (folder / "text").native() + "\"";
}

// Goal: changes of a text during its job end no job and change no result, as long as the tokens are kept.
// Method: a run of 8 steps; then again from its step 4 after each possible change.
TEST(Worker, ARunGoesOnWithTheTextThatItBeganWith) {
  const TemporaryFolder folder;
  const TinyRun run{.steps = 8, .every_steps = 4, .source = folder_source(folder)};
  const auto newest = folder / "checkpoints" / step_folder(8);
  write_file(folder / "text/b.txt", words(200));
  ASSERT_THAT(Ranks(folder.path(), run.json(folder), {.label = "first"}).wait(), Each(0));
  const auto expected = tensors_of(newest);
  ASSERT_EQ(expected.size(), 2u);

  constexpr const char* kChanged = "] the files of the text have changed since the run began; the run continues";
  const std::tuple<std::string, std::function<void()>, std::string> events[] = {
      {"touched", [&] { write_file(folder / "text/b.txt", words(200)); }, kChanged},
      {"grown", [&] { write_file(folder / "text/a.txt", "more"); }, kChanged},
      {"shorter than a sample", [&] { write_file(folder / "text/b.txt", ""); }, kChanged},
      {"gone", [&] { std::filesystem::remove_all(folder / "text"); },
       "] the text cannot be read now (data.source = \"folder\", data.path = "},
  };
  for (const auto& [label, happen, why] : events) {
    happen();
    std::filesystem::remove_all(newest);
    Ranks ranks(folder.path(), run.json(folder), {.label = label});
    ASSERT_THAT(ranks.wait(), Each(0)) << ranks.log(0) << ranks.log(1);
    EXPECT_THAT(values(ranks.lines(0, "resumed"), "resumed"), ElementsAre("4")) << label;
    EXPECT_TRUE(tensors_of(newest) == expected) << label;
    for (const int rank : {0, 1}) {
      EXPECT_THAT(ranks.log(rank), HasSubstr(why)) << label;
      EXPECT_THAT(ranks.log(rank),
                  HasSubstr("continues with the text that it began with, from " + (folder / "cache").native()));
    }
  }
}

TEST(Worker, WithoutItsTokensARunGoesOnWithTheSameTextAlone) {
  const TemporaryFolder folder;
  TinyRun run{.steps = 4, .source = folder_source(folder)};
  write_file(folder / "text/b.txt", words(200));
  ASSERT_THAT(Ranks(folder.path(), run.json(folder), {.label = "first"}).wait(), Each(0));
  run.steps = 6;
  write_file(folder / "text/a.txt", "more");
  std::filesystem::remove_all(folder / "cache");
  Ranks grown(folder.path(), run.json(folder), {.label = "grown"});
  EXPECT_THAT(grown.wait(), Each(93)) << grown.log(0);
  for (const int rank : {0, 1}) {
    EXPECT_THAT(grown.log(rank), HasSubstr("the text has changed since " + (folder / "checkpoints").native()));
    EXPECT_THAT(grown.log(rank), HasSubstr("restore it or its data in the cache folder, or use a new"));
  }
  std::filesystem::remove(folder / "text/a.txt");
  write_file(folder / "text/b.txt", words(200));  // another modification time, the same text
  std::filesystem::remove_all(folder / "cache");
  Ranks restored(folder.path(), run.json(folder), {.label = "restored"});
  EXPECT_THAT(restored.wait(), Each(0)) << restored.log(0);
  EXPECT_THAT(values(restored.lines(0, "resumed"), "resumed"), ElementsAre("4"));
  EXPECT_THAT(restored.log(0), Not(HasSubstr("have changed since the run began")));
}

// Goal: a run file that now asks for another text does not get the old text from the cache.
TEST(Worker, ARunFileThatAsksForAnotherTextIsRefusedThoughTheOldOneIsKept) {
  const TemporaryFolder folder;
  TinyRun run{.steps = 4};
  ASSERT_THAT(Ranks(folder.path(), run.json(folder), {.label = "first"}).wait(), Each(0));
  write_file(folder / "text/b.txt", words(200));
  run.source = folder_source(folder);
  Ranks ranks(folder.path(), run.json(folder), {.label = "second"});
  EXPECT_THAT(ranks.wait(), Each(93)) << ranks.log(0);
  EXPECT_THAT(ranks.log(1), HasSubstr("the run file asks for folder " + (folder / "text").native()));
  EXPECT_THAT(ranks.log(1), HasSubstr("then for fixture max_bytes="));
}

// Goal: ranks on nodes with separate caches continue with one text or stop together, naming the node that lacks it.
TEST(Worker, NodesThatKeepTheirTokensApartGoOnTogetherOrNotAtAll) {
  const TemporaryFolder folder;
  TinyRun run{.steps = 4, .source = folder_source(folder), .cache = ""};
  const auto attempt = [&](const std::string& label) {
    run.steps += 2;
    return Ranks(folder.path(), run.json(folder), {.label = label, .own_homes = true});
  };
  write_file(folder / "text/b.txt", words(200));
  Ranks first = attempt("first");
  ASSERT_THAT(first.wait(), Each(0)) << first.log(0);

  std::filesystem::remove_all(folder / "home.1");
  Ranks unchanged = attempt("unchanged");
  EXPECT_THAT(unchanged.wait(), Each(0)) << unchanged.log(1);

  write_file(folder / "text/a.txt", "more");
  Ranks grown = attempt("grown");
  EXPECT_THAT(grown.wait(), Each(0)) << grown.log(0);

  for (const int lost : {1, 0}) {
    const auto home = folder / ("home." + std::to_string(lost)), aside = folder / "aside";
    std::filesystem::rename(home, aside);
    Ranks ranks = attempt("lost" + std::to_string(lost));
    EXPECT_THAT(ranks.wait(), Each(93)) << ranks.log(0) << ranks.log(1);
    for (const int rank : {0, 1}) {
      EXPECT_THAT(ranks.log(rank), HasSubstr("rank " + std::to_string(lost) + ": the text has changed since"));
    }
    std::filesystem::remove_all(home);
    std::filesystem::rename(aside, home);
  }
}

// Goal: a job does not silently continue in another order of samples, which would repeat some samples and skip others.
TEST(Worker, ACheckpointOfAnotherOrderOfTheSamplesIsRefused) {
  const TemporaryFolder folder;
  const TinyRun run{.steps = 4};
  ASSERT_THAT(Ranks(folder.path(), run.json(folder), {.label = "first"}).wait(), Each(0));
  const auto manifest = folder / "checkpoints" / step_folder(4) / "manifest.json";
  const std::string good = read_file(manifest);
  for (const auto& [key, says] : {std::pair{"\"order\": 1", "(order 1, this program has order 2)"},
                                  {"\"order\": 3", "(order 3, this program has order 2)"},
                                  {"\"before there was one\": 2", "(order 1, this program has order 2)"}}) {
    write_file(manifest, good);
    edit(manifest, "\"order\": 2", key);
    Ranks ranks(folder.path(), run.json(folder), {.label = "again"});
    EXPECT_THAT(ranks.wait(), Each(93)) << ranks.log(0);
    EXPECT_THAT(ranks.log(1), HasSubstr(says));
    EXPECT_THAT(ranks.log(1), HasSubstr("continue with that program, or use a new checkpoint.folder"));
  }
}

TEST(Worker, AResumeOfOtherSamplesIsRefusedAndNamesWhatIsSetOtherwise) {
  const TemporaryFolder folder;
  ASSERT_THAT(Ranks(folder.path(), TinyRun{.steps = 4}.json(folder), {.label = "first"}).wait(), Each(0));
  const std::pair<TinyRun, std::vector<const char*>> cases[] = {
      {{.steps = 4, .seed = 7}, {"was saved with train.seed 0, now 7 (train.seed = 7 (0 until then))"}},
      {{.steps = 4, .sequence_length = 64},
       {"was saved with training samples in an epoch: ", "(data.sequence_length = 64 (32 until then))"}},
      {{.steps = 4, .extra_train = R"(,"average_decay":0.5)"}, {"(set otherwise: train.average_decay = 0.5 (0 until"}}};
  for (const auto& [run, says] : cases) {
    Ranks ranks(folder.path(), run.json(folder), {.label = "again"});
    EXPECT_THAT(ranks.wait(), Each(93)) << ranks.log(0);
    for (const char* part : says) EXPECT_THAT(ranks.log(1), HasSubstr(part));
    EXPECT_THAT(ranks.log(1), HasSubstr("restore the run file, or use a new checkpoint.folder"));
  }
}

TEST(Worker, AResumeNamesEachSettingThatDiffersFromTheCheckpoints) {
  const TemporaryFolder folder;
  ASSERT_THAT(Ranks(folder.path(), TinyRun{.steps = 4}.json(folder), {.label = "first"}).wait(), Each(0));
  Ranks same(folder.path(), TinyRun{.steps = 4}.json(folder), {.label = "same"});
  ASSERT_THAT(same.wait(), Each(0)) << same.log(0);
  EXPECT_THAT(same.log(0), HasSubstr("resumed from step 4"));
  EXPECT_THAT(same.log(0), Not(HasSubstr("set otherwise")));
  Ranks other(folder.path(), TinyRun{.steps = 6, .batch_size = 16}.json(folder), {.label = "other"});
  ASSERT_THAT(other.wait(), Each(0)) << other.log(0);
  EXPECT_THAT(other.log(0), HasSubstr("set otherwise than before step 4: train.batch_size = 16 (8 until then)"));
  EXPECT_THAT(other.log(0), HasSubstr("set otherwise than before step 4: train.steps = 6 (4 until then)"));
}

// Goal: a rank of an old attempt publishes nothing.
// Method: the fence is raised while the rank trains; then the rank is asked to save.
TEST(Worker, AnOldAttemptMayNotSave) {
  const TemporaryFolder folder;
  Ranks old(folder.path(), TinyRun{.steps = 100000, .step_delay_ms = 5}.json(folder), {.attempt = 1, .label = "old"});
  ASSERT_TRUE(old.reached(0, 3));
  write_file(folder / "checkpoints/FENCE", "attempt 2\n");
  old.rank(0).signal(SIGTERM);
  EXPECT_THAT(old.wait(), Each(94)) << old.log(0) << old.log(1);
  EXPECT_THAT(old.log(0), HasSubstr("attempt 2 owns this job now"));
  EXPECT_EQ(checkpoints_in(folder / "checkpoints"), 0);
  // An old attempt may neither start nor remove stale files.
  write_file(folder / "checkpoints/.tmp-step-00000005-attempt-1/part", "");
  Ranks late(folder.path(), TinyRun{}.json(folder), {.attempt = 1, .label = "late"});
  EXPECT_THAT(late.wait(), Each(94));
  EXPECT_TRUE(late.lines(0, "step").empty());
  EXPECT_TRUE(std::filesystem::exists(folder / "checkpoints/.tmp-step-00000005-attempt-1/part"));
}

TEST(Worker, MistakesThatARetryCannotMendAreNeverRequeued) {
  const TemporaryFolder folder;
  const TinyRun good{.steps = 4};
  ASSERT_THAT(Ranks(folder.path(), good.json(folder), {.label = "good"}).wait(), Each(0));
  write_file(folder / "file", "");
  write_file(folder / "text/a.txt", std::string(4000, 'x'));
  const std::string text = R"("source":"folder","path":")" + (folder / "text").native() + "\"";
  const std::pair<TinyRun, const char*> cases[] = {
      {{.extra_train = R"(,"stepz":1)"}, "train.stepz"},
      {{.batch_size = 7}, "train.batch_size = 7: want a multiple of 4"},
      {{.learning_rate = 1000, .checkpoints = "x", .extra_train = R"(,"schedule":"constant","weight_decay":1000)"},
       "gradient's norm"},
      {{.checkpoints = "file"}, "checkpoint.folder"},
      {{.checkpoints = "y", .source = R"("source":"folder","path":"/no/such")"}, "data.path = \"/no/such\""},
      {{.source = text}, "the text has changed since"},
      {{.model = R"("hidden_size":16,"num_hidden_layers":1,"num_attention_heads":2)"}, "is of another model"},
      {{.extra_train = R"(,"optimizer":"sgd")"}, "was saved with the optimizer adamw, and this run has sgd"},
  };
  for (const auto& [run, says] : cases) {
    Ranks ranks(folder.path(), run.json(folder), {.label = "bad"});
    EXPECT_THAT(ranks.wait(), Each(93)) << says << ranks.log(0);
    EXPECT_THAT(ranks.log(0), HasSubstr(says));
  }
}

TEST(Worker, RunningOutOfMemoryHasItsOwnCode) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer needs more address space than the limit of this test";
#endif
  const TemporaryFolder folder;
  TinyRun run;
  run.model = R"("vocab_size":4000000,"hidden_size":4096,"num_hidden_layers":1,"num_attention_heads":1)";
  Ranks ranks(folder.path(), run.json(folder), {.world_size = 1, .address_space_bytes = std::int64_t{16} << 30});
  EXPECT_THAT(ranks.wait(), Each(97)) << ranks.log(0);
}

TEST(Worker, DoesNotStartWhereItsPlanDoesNotFit) {
  const TemporaryFolder folder;
  TinyRun run;
  run.model = R"("hidden_size":8192,"intermediate_size":28672,"num_hidden_layers":40,"num_attention_heads":64,
                 "max_position_embeddings":64)";
  Ranks ranks(folder.path(), run.json(folder), {.world_size = 1});
  EXPECT_THAT(ranks.wait(), Each(93)) << ranks.log(0);
  EXPECT_THAT(ranks.log(0), HasSubstr("and does not fit: it has "));
  EXPECT_THAT(ranks.log(0), HasSubstr("fsdp.check_memory = false"));
}

TEST(Worker, PrintsAPlanAndTrainsNothing) {
  const TemporaryFolder folder;
  write_file(folder / "run.json", TinyRun{}.json(folder));
  const std::map<std::string, std::string> place = {
      {"RANK", "0"},      {"LOCAL_RANK", "0"},          {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "2"},
      {"NODE_RANK", "0"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "1"}};
  Process plan(::test::built_program("muster-worker"),
               {"--plan", "--run-file", (folder / "run.json").native(), "--memory", "1000000"}, place, folder / "plan");
  EXPECT_EQ(plan.wait(20s), 0);
  EXPECT_THAT(read_file(folder / "plan"), AllOf(HasSubstr(R"("ranks":2)"), HasSubstr(R"("limit_bytes":1000000)")));
  EXPECT_FALSE(std::filesystem::exists(folder / "checkpoints"));
  Process wrong(::test::built_program("muster-worker"),
                {"--plan", "--run-file", (folder / "run.json").native(), "--memory", "1GiB"}, place, folder / "wrong");
  EXPECT_EQ(wrong.wait(20s), 93);
  EXPECT_THAT(read_file(folder / "wrong"), HasSubstr("--memory 1GiB: want a number of bytes"));
}

TEST(Worker, HelpIsPrintedAndWrongArgumentsAreRefused) {
  const TemporaryFolder folder;
  Process help(::test::built_program("muster-worker"), {"--help"}, {}, folder / "help");
  EXPECT_EQ(help.wait(20s), 0);
  EXPECT_THAT(read_file(folder / "help"), HasSubstr("--run-file FILE"));
  Process wrong(::test::built_program("muster-worker"), {"--frobnicate"},
                {{"MUSTER_METRICS_FILE", (folder / "m").native()}}, folder / "wrong");
  EXPECT_EQ(wrong.wait(20s), 93);
  EXPECT_THAT(read_file(folder / "wrong"),
              HasSubstr("there is no option --frobnicate; want one of --run-file, --plan"));
}

}  // namespace
}  // namespace worker::testing
