// Goal: every job file that muster init writes is one that muster takes, at both sizes.
// Method: each is read as muster submit reads it, with no other file beside it; folders need not be there.
#include "cli/cli_command.h"
#include "cli/program_sketch.h"

#include <gmock/gmock.h>

#include <sstream>
#include <string>

#include "spec/jobfile/job_file.h"
#include "spec/jobfile/job_keys.h"
#include "spec/recipes.h"
#include "tests/places.h"
#include "tests/system/process.h"

namespace cli {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

/// The lines before the first that is no comment.
std::string leading_comment(const std::string& text) {
  std::istringstream in(text);
  std::string out;
  for (std::string line; std::getline(in, line) && line.starts_with("#");) out += line + "\n";
  return out;
}

/// The value of data.prepared.
std::string prepared_in(const std::string& text) {
  static const std::string kKey = "\nprepared = \"";
  const auto at = text.find(kKey);
  if (at == std::string::npos) return "(no data.prepared)";
  const auto begin = at + kKey.size();
  return text.substr(begin, text.find('"', begin) - begin);
}

TEST(Init, EachStarterIsAJobFileWithoutAProblem) {
  for (const bool full : {false, true}) {
    ASSERT_FALSE(starters(full).empty());
    for (const auto& name : starters(full)) {
      SCOPED_TRACE(name + (full ? ", full" : ""));
      const std::string text(starter(name, full));
      const auto file =
          jobfile::compose(jobfile::JobSource::of_text(text, name + ".toml", "/"), {}, jobfile::FileChecks::kSkip);
      EXPECT_THAT(file.problems, IsEmpty());
      EXPECT_TRUE(text.starts_with("# ")) << "it begins by saying what it is";
      const std::string lead = leading_comment(text);
      EXPECT_THAT(lead, HasSubstr("muster data prepare --from "));
      EXPECT_THAT(lead, ContainsRegex("muster submit (--follow )?" + name + "\\.toml")) << "the file that init writes";
      EXPECT_THAT(lead, HasSubstr("--to " + prepared_in(text))) << "the data that the job reads";
    }
  }
}

TEST(Init, EachRecipeHasAStarter) {
  for (const auto& recipe : spec::recipes()) {
    const std::string text(starter(recipe.kind, false));
    ASSERT_NE(text, "") << recipe.kind;
    EXPECT_NE(text.find("recipe = \"" + std::string(recipe.kind) + "\""), std::string::npos) << recipe.kind;
  }
  EXPECT_EQ(starter("gpt5", false), "");
}

// A training at its full size goes on for days, so nothing of it may be lost.
TEST(Init, EachRecipeHasAFullSizeThatKeepsItsModel) {
  for (const auto& name : starters(false)) EXPECT_NE(starter(name, true), "") << name;
  for (const auto& recipe : spec::recipes()) EXPECT_NE(starter(recipe.kind, true), "") << recipe.kind;
  for (const auto& name : starters(true))
    EXPECT_NE(starter(name, true).find("\nexport_folder = \"models/"), std::string_view::npos) << name;
}

TEST(Init, WritesTheFileThatItsLinesName) {
  const test::TemporaryFolder folder;
  const auto init = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"/bin/sh", "-c", "cd \"$0\" && exec \"$@\"", folder.path().native(),
                                 ::test::built_program("muster"), "init"});
    return test::run(words, {}, 20s);
  };
  const auto done = init({"masked_lm", "--full"});
  EXPECT_EQ(done.exit, 0) << done.err;
  EXPECT_EQ(done.out, "wrote masked-lm.toml; its first lines say how to make the data and submit it\n");
  EXPECT_EQ(test::read_file(folder / "masked-lm.toml"), starter("masked-lm", true));
  const auto again = init({"masked-lm"});
  EXPECT_EQ(again.exit, 2);
  EXPECT_THAT(again.err, HasSubstr("masked-lm.toml is there already; give another name: -o FILE"));
  EXPECT_EQ(init({"chess-lora", "-o", "my adapters.toml"}).exit, 0);
  const std::string mine = test::read_file(folder / "my adapters.toml"), own(starter("chess-lora", false));
  EXPECT_THAT(leading_comment(mine), HasSubstr("muster submit --follow 'my adapters.toml'"));
  EXPECT_THAT(leading_comment(mine), HasSubstr("that chess.toml has trained"));
  EXPECT_EQ(mine.substr(leading_comment(mine).size()), own.substr(leading_comment(own).size()));
  const auto unknown = init({"gpt5"});
  EXPECT_EQ(unknown.exit, 2);
  EXPECT_THAT(unknown.err,
              HasSubstr("there is no job file \"gpt5\"; want one of: chess chess-lora pythia t5 bert masked-lm dino"));
}

constexpr const char* kPlainLoop = R"(import argparse
import torch
def main():
    for step in range(3):
        print(f"step {step} loss {1 / (step + 1):.3f}")
        loss.backward()
if __name__ == "__main__":
    main()
)";

/// The job of the file that is written for these sources.
muster::v1::JobSpec job_for(const std::vector<SourceText>& sources) {
  const auto found = find_trainer(sources);
  if (!found) return {};
  const auto text = job_file_of(*found, "train.toml", true);
  const auto file =
      jobfile::compose(jobfile::JobSource::of_text(text, "train.toml", "/"), {}, jobfile::FileChecks::kSkip);
  EXPECT_THAT(file.problems, IsEmpty()) << text;
  return file.spec;
}

TEST(InitProgram, OfSeveralProgramsTheTrainerIsFound) {
  const auto found = find_trainer({{"data.py", "import torch\n"},
                                   {"eval.py", kPlainLoop},
                                   {"model.py", "import torch\n"},
                                   {"notes.py", "print(1)\n"},
                                   {"pretrain.py", kPlainLoop}});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->file, "pretrain.py");
  EXPECT_FALSE(find_trainer({{"notes.py", "print(1)\n"}, {"run.sh", "python notes.py\n"}}));
  const auto named = find_trainer({{"a.py", kPlainLoop}, {"b.py", kPlainLoop}, {"go.sh", "exec torchrun b.py\n"}});
  ASSERT_TRUE(named);
  EXPECT_EQ(named->file, "b.py") << "a script starts it";
  EXPECT_EQ(named->others, std::vector<std::string>{"a.py"});
}

TEST(InitProgram, TorchrunsProcessesBecomeRanks) {
  const auto spec =
      job_for({{"go.sh", "#!/bin/bash\ntorchrun --standalone --nproc_per_node=4 \\\n  src/train.py --lr 3e-4\n"},
               {"train.py", kPlainLoop}});
  EXPECT_THAT(spec.command().argv(), testing::ElementsAre("python3", "train.py", "--lr", "3e-4"));
  EXPECT_EQ(spec.launcher(), "muster");
  EXPECT_EQ(spec.resources().ranks_per_node(), 4U);
  EXPECT_EQ(spec.resources().gpus_per_rank(), 1U);
  EXPECT_EQ(spec.report().log().size(), 2U);
}

TEST(InitProgram, AccelerateAndLightningStartTheirRanksThemselves) {
  const auto accelerate = job_for({{"go.sh", "accelerate launch --num_processes 2 train.py --seed 1\n"},
                                   {"train.py", std::string("from accelerate import Accelerator\n") + kPlainLoop}});
  EXPECT_THAT(accelerate.command().argv(),
              testing::ElementsAre("accelerate", "launch", "--num_processes", "2", "train.py", "--seed", "1"));
  EXPECT_EQ(accelerate.launcher(), "own");
  EXPECT_EQ(accelerate.resources().gpus_per_rank(), 2U);
  const auto lightning = job_for({{"train.py", "import lightning as L\nL.Trainer(devices=2).fit(model)\n"}});
  EXPECT_THAT(lightning.command().argv(), testing::ElementsAre("python3", "train.py"));
  EXPECT_EQ(lightning.launcher(), "own");
}

TEST(InitProgram, AScriptForSbatchTellsItsTasks) {
  const std::vector<SourceText> sources{
      {"submit.sh", "#!/bin/bash\n#SBATCH --ntasks-per-node=2\nsrun python train.py --out $SCRATCH/x\n"},
      {"train.py", std::string("import hydra\nimport transformers\nTrainer(model)\n") + kPlainLoop}};
  const auto spec = job_for(sources);
  EXPECT_THAT(spec.command().argv(), testing::ElementsAre("python3", "train.py"))
      << "words that only a shell understands are left out";
  EXPECT_EQ(spec.resources().ranks_per_node(), 2U);
  const auto text = job_file_of(*find_trainer(sources), "my job.toml", false);
  EXPECT_THAT(text, HasSubstr("# submit.sh also runs as it is:  muster submit submit.sh\n"));
  EXPECT_THAT(text, HasSubstr("muster submit --follow 'my job.toml'\n"));
  EXPECT_THAT(text, HasSubstr("muster.hf.Callback()"));
  EXPECT_THAT(text, HasSubstr("\n# gpus_per_rank = 1\n")) << "there is none here";
}

// The program is a shell script under the name of Python, since Python's packages are not needed to start it.
TEST(InitProgram, TheWrittenFileRunsAndIsNeverOverwritten) {
  const test::TemporaryFolder folder;
  test::write_file(folder / "train.py", kPlainLoop);
  test::write_file(folder / "go.sh", "torchrun --nproc-per-node 2 train.py --lr 3\n");
  test::write_file(folder / "python3", "#!/bin/sh\necho \"rank $RANK of $WORLD_SIZE: $*\"\n");
  std::filesystem::permissions(folder / "python3", std::filesystem::perms::owner_all);
  const auto muster = [&](const std::string& words) {
    return test::run({"/bin/sh", "-c", "cd \"$0\" && PATH=\"$0:$PATH\" && exec \"$1\" " + words, folder.path().native(),
                      ::test::built_program("muster")},
                     {{"TMPDIR", folder.path()}, {"HOME", folder.path()}, {"MUSTER_ADDRESS", "127.0.0.1:1"}}, 30s);
  };
  const auto done = muster("init program");
  ASSERT_EQ(done.exit, 0) << done.err;
  EXPECT_EQ(done.out, "wrote train.toml for train.py; try it: muster submit --executor debug train.toml\n");
  const auto ran = muster("submit --executor debug train.toml");
  EXPECT_EQ(ran.exit, 0) << ran.err;
  EXPECT_EQ(ran.out, "rank 0 of 2: train.py --lr 3\n");
  EXPECT_THAT(ran.err, HasSubstr("[rank 1] rank 1 of 2: train.py --lr 3\n"));
  const auto again = muster("init program");
  EXPECT_EQ(again.exit, 2);
  EXPECT_THAT(again.err, HasSubstr("train.toml is there already; give another name: -o FILE"));
  EXPECT_EQ(muster("init program -o -").out, test::read_file(folder / "train.toml"));
  std::filesystem::remove(folder / "train.py");
  EXPECT_THAT(muster("init program").err, HasSubstr("imports torch, transformers, lightning or hydra; "));
}

}  // namespace
}  // namespace cli
