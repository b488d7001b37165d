// Goal: a script for sbatch becomes the job that sbatch would have made of it, or is refused with line and remedy.
// Method: scripts in the manner of cluster guides (tests/spec/jobfile/scripts), and a golden file of what each becomes.
#include "spec/jobfile/script_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "spec/jobfile/job_keys.h"
#include "spec/jobfile/toml_value.h"
#include "tests/places.h"

namespace jobfile {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const spec::Environment kSubmitter{{"PATH", "/venv/bin:/usr/bin"},
                                   {"DATA_ROOT", "/data"},
                                   {"SECRET_TOKEN", "x"},
                                   {"HOME", "/home/ada"},
                                   {"SLURM_JOB_ID", "999"}};

ScriptJob job_of(const std::string& text, std::vector<std::string> arguments = {}, std::vector<Override> later = {}) {
  return job_of_script({text, "run.sh", std::move(arguments), "/work"}, later, kSubmitter);
}

JobFile composed(const ScriptJob& job, const std::vector<Override>& later = {}) {
  auto overrides = job.overrides;
  overrides.insert(overrides.end(), later.begin(), later.end());
  auto file = compose(job.source, overrides, FileChecks::kSkip);
  file.problems.insert(file.problems.begin(), job.problems.begin(), job.problems.end());
  return file;
}

muster::v1::JobSpec spec_of(const std::string& text, const std::vector<Override>& later = {}) {
  const auto file = composed(job_of(text, {}, later), later);
  EXPECT_THAT(file.problems, IsEmpty());
  return file.spec;
}

std::string text_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The job as people read it: its job file without the command, the array's tasks, notes and problems.
std::string told(const std::filesystem::path& path) {
  const auto job = job_of_script({text_of(path), path.filename().native(), {"a", "b c"}, "/work"}, {}, kSubmitter);
  auto file = composed(job);
  std::ostringstream out;
  out << "=== " << path.filename().native() << "\n";
  for (const auto& note : job.notes) out << "note: " << note << "\n";
  for (const auto& problem : file.problems) out << "problem: " << problem << "\n";
  if (!file.problems.empty()) return out.str() + "\n";
  for (const auto& axis : job.axes) {
    out << "tasks: " << axis.key << " =";
    for (const auto& value : axis.values) out << " " << value;
    out << (job.parallel > 0 ? ", " + std::to_string(job.parallel) + " at a time" : "") << "\n";
  }
  auto spec = file.spec;
  spec.mutable_command()->clear_argv();
  spec.mutable_command()->add_argv("...");
  return out.str() + job_file_text(spec) + "\n";
}

TEST(ScriptJobGolden, EachScriptBecomesThisJob) {
  const std::filesystem::path folder = ::test::source_folder() + "/tests/spec/jobfile/scripts";
  std::vector<std::filesystem::path> scripts;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) scripts.push_back(entry.path());
  std::ranges::sort(scripts);
  ASSERT_GE(scripts.size(), 20U);
  std::string text;
  for (const auto& script : scripts) text += told(script);
  const auto golden = ::test::source_folder() + "/tests/golden/sbatch_scripts.txt";
  if (std::getenv("MUSTER_BLESS") != nullptr) std::ofstream(golden) << text;
  EXPECT_EQ(text, text_of(golden)) << "MUSTER_BLESS=1 rewrites it";
}

TEST(ScriptJob, TheTextIsTheJobsAndItsJobFileMakesTheSameJob) {
  const std::string script = "#!/bin/bash\n#SBATCH -t 5\necho \"it's\" 'x'\n\tcat <<'A'\nb \\n\nA\n";
  const auto spec = composed(job_of(script, {"a", "b c"})).spec;
  const auto& argv = spec.command().argv();
  ASSERT_EQ(argv.size(), 7);
  EXPECT_EQ(argv[3], "run.sh");
  EXPECT_EQ(argv[4], script);
  EXPECT_EQ(argv[5], "a");
  EXPECT_EQ(argv[6], "b c");
  EXPECT_EQ(spec.launcher(), "batch");
  EXPECT_EQ(spec.working_folder(), "/work");
  EXPECT_EQ(spec.environment(), "submit");
  const auto text = job_file_text(spec);
  EXPECT_THAT(text, HasSubstr("'''\n" + script + "'''")) << "people can read it";
  const auto again = compose(JobSource::of_text(text, "job.toml", "/elsewhere"), {}, FileChecks::kSkip);
  EXPECT_THAT(again.problems, IsEmpty()) << text;
  EXPECT_EQ(again.spec.DebugString(), spec.DebugString());
  const auto quotes = composed(job_of("#!/bin/sh\necho '''a'''\n")).spec;
  EXPECT_EQ(
      compose(JobSource::of_text(job_file_text(quotes), "job.toml", "/"), {}, FileChecks::kSkip).spec.command().argv(4),
      "#!/bin/sh\necho '''a'''\n");
}

TEST(ScriptJob, TheCommandLineWins) {
  const std::string script = "#!/bin/bash\n#SBATCH --nodes=2 --ntasks=8 --time=1:00:00 -p gpu\n";
  const std::vector<Override> later{{"--nodes 4", "resources.nodes", "4"}, {"--time 2h", "resources.time_limit", "2h"}};
  const auto spec = spec_of(script, later);
  EXPECT_EQ(spec.resources().nodes(), 4U);
  EXPECT_EQ(spec.resources().ranks_per_node(), 2U) << "the same 8 tasks on 4 nodes";
  EXPECT_EQ(spec.resources().time_limit_ms(), 7'200'000);
  EXPECT_EQ(slurm_text(spec, "partition"), "gpu");
  EXPECT_EQ(world_size(spec), 1U) << "muster starts the script, and the script its tasks";
}

TEST(ScriptJob, TheLastOfAnOptionCountsAndASweepMayVaryIt) {
  const auto job = job_of("#!/bin/bash\n#SBATCH -t 5\n#SBATCH --time=7\n");
  EXPECT_EQ(composed(job).spec.resources().time_limit_ms(), 420'000);
  const auto sweep =
      compose_sweep(job.source, job.overrides, {axis_of_option("time_limit=1h,2h").axis}, FileChecks::kSkip);
  EXPECT_THAT(sweep.problems, IsEmpty());
  ASSERT_EQ(sweep.specs.size(), 2U);
  EXPECT_EQ(sweep.specs[1].resources().time_limit_ms(), 7'200'000);
}

TEST(ScriptJob, TheVariablesThatItNamesComeFromTheSubmitter) {
  const auto spec = spec_of("#!/bin/bash\ncd $DATA_ROOT/${HOME} # $SLURM_JOB_ID\n");
  EXPECT_EQ(spec.submitted_env().at("DATA_ROOT"), "/data");
  EXPECT_TRUE(spec.submitted_env().contains("PATH"));
  for (const auto* name : {"SECRET_TOKEN", "HOME", "SLURM_JOB_ID"}) EXPECT_FALSE(spec.submitted_env().contains(name));
}

TEST(ScriptJob, AnArrayIsASweepOfItsTasks) {
  const auto job = job_of("#!/bin/bash\n#SBATCH --array=1-7:3,9%2\n");
  ASSERT_EQ(job.axes.size(), 1U);
  EXPECT_THAT(job.axes[0].values, ElementsAre("1", "4", "7", "9"));
  EXPECT_EQ(job.parallel, 2U);
  const auto sweep = compose_sweep(job.source, job.overrides, job.axes, FileChecks::kSkip);
  EXPECT_THAT(sweep.problems, IsEmpty());
  ASSERT_EQ(sweep.specs.size(), 4U);
  EXPECT_EQ(sweep.specs[2].env().at("SLURM_ARRAY_TASK_ID"), "7");
  EXPECT_EQ(sweep.specs[2].env().at("SLURM_ARRAY_TASK_COUNT"), "4");
  EXPECT_EQ(slurm_text(sweep.specs[2], "output"), "slurm-%A_%a.out");
}

TEST(ScriptJob, GpusOfANodeAreCountedHoweverTheyAreAskedFor) {
  const auto gpus = [](const std::string& options) {
    return gpus_of_node(spec_of("#!/bin/bash\n#SBATCH " + options + "\n"));
  };
  EXPECT_EQ(gpus("--gres=gpu:2"), 2U);
  EXPECT_EQ(gpus("--gres=shard:1,gpu:a100:4"), 4U);
  EXPECT_EQ(gpus("--gres=gpu"), 1U);
  EXPECT_EQ(gpus("--gpus-per-node=a100:3"), 3U);
  EXPECT_EQ(gpus("-G 8 -N 2"), 4U);
  EXPECT_EQ(gpus("--gpus-per-task=1 -n 3"), 3U);
  EXPECT_EQ(gpus("--gpus-per-task=a100:2 -n 3"), 6U);
  EXPECT_EQ(gpus("-n 3"), 0U);
}

TEST(ScriptJob, WhatIsNoScriptIsToldFromAJobFile) {
  EXPECT_TRUE(is_sbatch_script("run.sh", "#!/bin/sh\n"));
  EXPECT_TRUE(is_sbatch_script("run", "echo\n#SBATCH -t 1\n"));
  EXPECT_FALSE(is_sbatch_script("job.toml", "#!/usr/bin/env muster\nname = \"a\"\n"));
  EXPECT_FALSE(is_sbatch_script("-", "name = \"a\"\n"));
  EXPECT_THAT(job_of("#!/bin/sh\r\necho\r\n").problems, ElementsAre(HasSubstr("run.sh:1: the lines end as on DOS")));
  EXPECT_THAT(job_of("#!/bin/sh\n" + std::string(1 << 17, 'a')).problems,
              ElementsAre(HasSubstr("want less than 128 KiB")));
}

}  // namespace
}  // namespace jobfile
