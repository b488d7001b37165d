// Goal: a job takes the right variables from its submitter, and bad ones are refused with a remedy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "spec/jobfile/job_file.h"
#include "spec/jobfile/spec.h"
#include "spec/jobfile/sweep.h"
#include "spec/variables.h"

namespace jobfile {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr const char* kTrain = "name = \"a\"\ncommand = [\"python3\", \"train.py\"]\n";
const spec::Environment kHere{{"PATH", "/venv/bin:/bin"}, {"VIRTUAL_ENV", "/venv"}, {"HOME", "/home/ada"}};

JobFile submitted(const std::string& text, const spec::Environment& here = kHere) {
  auto source = JobSource::of_text(text, "job.toml", "/tmp");
  source.set_submitter(here);
  return compose(source, {}, FileChecks::kLook);
}

TEST(Environment, ACommandTakesItsSubmittersPathAndSaysSo) {
  const auto file = submitted(kTrain);
  ASSERT_THAT(file.problems, IsEmpty());
  EXPECT_EQ(file.spec.environment(), "submit");
  EXPECT_THAT(file.spec.submitted_env(),
              UnorderedElementsAre(Pair("PATH", "/venv/bin:/bin"), Pair("VIRTUAL_ENV", "/venv")));
}

TEST(Environment, CleanTakesNothingAndARecipeIsClean) {
  const auto clean = submitted(std::string(kTrain) + "environment = \"clean\"\n");
  ASSERT_THAT(clean.problems, IsEmpty());
  EXPECT_THAT(clean.spec.submitted_env(), IsEmpty());
  const auto recipe = submitted("name = \"a\"\n[train]\n");
  ASSERT_THAT(recipe.problems, IsEmpty());
  EXPECT_EQ(recipe.spec.environment(), "clean");
  EXPECT_THAT(recipe.spec.submitted_env(), IsEmpty());
}

TEST(Environment, WhatAJobFileBringsAlongIsNotTakenAgain) {
  const auto file = submitted(std::string(kTrain) + "[submitted_env]\nPATH = \"/of/the/first\"\n");
  ASSERT_THAT(file.problems, IsEmpty());
  EXPECT_THAT(file.spec.submitted_env(), ElementsAre(Pair("PATH", "/of/the/first")));
}

TEST(Environment, EveryJobOfASweepTakesTheSame) {
  auto source = JobSource::of_text(std::string(kTrain) + "[sweep]\nenv.LR = [1, 2]\n", "job.toml", "/tmp");
  source.set_submitter(kHere);
  const auto sweep = compose_sweep(source, {}, {}, FileChecks::kLook);
  ASSERT_THAT(sweep.problems, IsEmpty());
  for (const auto& spec : sweep.specs) EXPECT_EQ(spec.submitted_env().at("VIRTUAL_ENV"), "/venv");
}

TEST(Environment, VariablesMayBeNumbersAndTruthsAsTheyAreWritten) {
  const auto file = submitted(std::string(kTrain) + "[env]\nA = 3\nB = 1e-3\nC = true\nD = \"x\"\nE = 2.50\n");
  ASSERT_THAT(file.problems, IsEmpty());
  EXPECT_THAT(file.spec.env(), UnorderedElementsAre(Pair("A", "3"), Pair("B", "1e-3"), Pair("C", "true"),
                                                    Pair("D", "x"), Pair("E", "2.50")));
}

TEST(Environment, RefusalsNamePlaceValueAndRemedy) {
  const auto problems = [](const std::string& text, const spec::Environment& here = kHere) {
    return submitted(text, here).problems;
  };
  EXPECT_THAT(problems(std::string(kTrain) + "environment = \"mine\"\n"),
              ElementsAre("job.toml:3:15: environment \"mine\": want one of \"submit\", \"clean\""));
  EXPECT_THAT(problems("name = \"a\"\nenvironment = \"submit\"\n[train]\n"),
              ElementsAre("job.toml:2:15: environment \"submit\": want clean: a recipe runs muster-worker, which needs "
                          "no variables of its submitter; leave it out; [env] sets variables for its ranks"));
  EXPECT_THAT(problems(std::string(kTrain) + "environment = \"clean\"\n[submitted_env]\nPATH = \"/bin\"\n"),
              ElementsAre("job.toml:4:1: submitted_env \"1 variables\": want none with environment = \"clean\"; leave "
                          "the table out, or set environment = \"submit\""));
  EXPECT_THAT(problems(kTrain, {{"PATH", std::string(70'000, 'x')}, {"PYTHONPATH", "y"}}),
              ElementsAre("job.toml:1:1: environment \"submit\": want at most 64 KiB of variables from the submitter, "
                          "not 69 KiB (PATH alone is 69 KiB); shorten PATH, or set environment = \"clean\" and in "
                          "[env] what the program needs"));
  EXPECT_THAT(problems(kTrain, {{"PYTHONPATH", "/caf\xe9"}}),
              ElementsAre("job.toml:1:1: environment \"submit\": want variables in UTF-8 from the submitter; "
                          "PYTHONPATH is not; unset PYTHONPATH where muster submit runs, or set environment = "
                          "\"clean\""));
  EXPECT_THAT(problems(std::string(kTrain) + "[submitted_env]\n\"A B\" = \"x\"\n"),
              ElementsAre("job.toml:4:9: submitted_env.A B \"A B\": want a variable's name: letters, digits and \"_\", "
                          "no digit first; rename it"));
}

// muster shows a spec with masked secrets. Such a spec cannot be submitted again.
TEST(Environment, AHiddenSecretIsRefused) {
  EXPECT_THAT(submitted(std::string(kTrain) + "[env]\nHF_TOKEN = \"********\"\n").problems,
              ElementsAre("job.toml:4:12: env.HF_TOKEN \"********\": want the value itself: muster shows this in the "
                          "place of a secret; give it with muster submit --env HF_TOKEN"));
  EXPECT_THAT(submitted(std::string(kTrain) + "[submitted_env]\nCONDA_TOKEN = \"********\"\n").problems,
              ElementsAre("job.toml:4:15: submitted_env.CONDA_TOKEN \"********\": want the value itself: muster shows "
                          "this in the place of a secret; remove the table [submitted_env], so that muster submit "
                          "takes the variables again"));
}

TEST(Secrets, AreMaskedInEveryPlaceOfASpec) {
  muster::v1::JobSpec spec;
  (*spec.mutable_env())["HF_TOKEN"] = "hf_abc";
  (*spec.mutable_env())["LR"] = "1";
  (*spec.mutable_submitted_env())["CONDA_TOKEN"] = "abc";
  (*spec.mutable_sweep()->mutable_settings())["env.API_KEY"] = "abc";
  (*spec.mutable_sweep()->mutable_settings())["train.seed"] = "1";
  mask_secrets(spec);
  EXPECT_EQ(spec.env().at("HF_TOKEN"), spec::kMask);
  EXPECT_EQ(spec.env().at("LR"), "1");
  EXPECT_EQ(spec.submitted_env().at("CONDA_TOKEN"), spec::kMask);
  EXPECT_EQ(spec.sweep().settings().at("env.API_KEY"), spec::kMask);
  EXPECT_EQ(spec.sweep().settings().at("train.seed"), "1");
}

}  // namespace
}  // namespace jobfile
