// Goal: what README.md, docs/cheat-sheet.md and examples/ tell people to type works, word for word.
// Method: their commands are cut out of the text and run in order against a private controller.
#include <gmock/gmock.h>
#include <signal.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "tests/places.h"
#include "tests/system/world.h"

namespace test {
namespace {

using ::testing::HasSubstr;

const std::filesystem::path kSource = ::test::source_folder();

/// The first fenced block of a language after a heading of a page; fails the test if there is none.
std::string block_after(const std::string& page, const std::string& heading, const std::string& language) {
  const auto text = read_file(kSource / page);
  const auto fence = "\n```" + language + "\n";
  const auto section = text.find("\n" + heading + "\n");
  const auto begin = section == std::string::npos ? section : text.find(fence, section);
  const auto end = begin == std::string::npos ? begin : text.find("\n```", begin + fence.size());
  if (end == std::string::npos) throw std::runtime_error(page + " lacks " + heading + " with a block of " + language);
  return text.substr(begin + fence.size(), end - begin - fence.size() + 1);
}

/// The `muster ...` lines of the block. The others must be the ones that set the scene, which a World does itself.
std::vector<std::string> commands_in_a_row() {
  std::vector<std::string> commands;
  std::istringstream lines(block_after("docs/cheat-sheet.md", "## The commands in a row", "sh"));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("muster up ") || line.starts_with("muster down ")) continue;  // tests/system/up_test.py
    if (line.starts_with("muster ")) {
      commands.push_back(line);
    } else if (!line.starts_with("./dev build") && !line.starts_with("export PATH=")) {
      throw std::runtime_error("docs/cheat-sheet.md: nobody runs this line: " + line);
    }
  }
  return commands;
}

Finished shell(World& world, const std::string& line, const std::filesystem::path& where) {
  auto environment = world.client_environment();
  environment["PATH"] = ::test::build_folder() + "/bin:/usr/bin:/bin";
  return run({"/bin/bash", "-c", "cd '" + where.native() + "' && " + line}, environment, 600s);
}

void expect_every_command_works(World& world, const std::filesystem::path& where) {
  const auto commands = commands_in_a_row();
  ASSERT_GE(commands.size(), 7U);
  for (const auto& line : commands) {
    auto done = shell(world, line, where);
    EXPECT_EQ(done.exit, 0) << line << "\n" << done.out << done.err;
    // The job before it may have no rank yet.
    if (line.starts_with("muster top")) {
      EXPECT_TRUE(eventually([&] { return !(done = shell(world, line, where)).out.empty(); }, 30s));
    }
    EXPECT_FALSE(done.out.empty()) << line;
  }
  EXPECT_EQ(world.show("1").at("name"), "manpages-llama");
  EXPECT_EQ(world.show("1").at("state"), "succeeded") << "examples/manpages-llama.toml";
}

TEST(Readme, EveryCommandOfTheCheatSheetWorksInItsOrder) {
  World world;
  world.start_daemon();
  expect_every_command_works(world, kSource);
}

// The demo trains the example as it is.
TEST(Readme, ItsCommandsWorkInTheirOrderWithAFewStepsOfTheExample) {
  World world;
  world.start_daemon();
  const auto copy = world.folder() / "copy", example = copy / "examples/manpages-llama.toml";
  std::filesystem::create_directory(copy);
  std::filesystem::copy(kSource / "examples", copy / "examples", std::filesystem::copy_options::recursive);
  auto text = read_file(example);
  const std::string steps = "\nsteps = 150\n";
  const auto at = text.find(steps);
  ASSERT_NE(at, std::string::npos);
  write_file(example, text.replace(at, steps.size(), "\nsteps = 16\n"));
  expect_every_command_works(world, copy);
  EXPECT_EQ(world.show("1").at("step"), 16);
}

TEST(Readme, ItsJobFileIsAccepted) {
  World world;
  world.start_daemon();
  const auto job = world.submit(block_after("README.md", "## A recipe", "toml"));
  EXPECT_EQ(world.show(job).at("name"), "manpages-llama");
  EXPECT_EQ(world.cli({"cancel", job}).exit, 0);
}

TEST(Readme, ItsOwnProgramIsRequeuedResumesAndHasACurve) {
  World world;
  world.start_daemon();
  const auto folder = world.folder() / "mine";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "train.py") << block_after("README.md", "## Your own program", "python");
  std::ofstream(folder / "job.toml") << block_after("README.md", "## Your own program", "toml");
  std::filesystem::create_directory_symlink(kSource / "python", folder / "python");
  const auto submitted = world.cli({"submit", folder / "job.toml"});
  ASSERT_EQ(submitted.exit, 0) << submitted.err;
  ASSERT_TRUE(eventually(
      [&] {
        const auto step = world.show("1").at("step");
        return step.is_number() && step >= 20;
      },
      30s));
  EXPECT_EQ(world.cli({"requeue", "1"}).exit, 0);
  const auto job = world.until_state("1", "succeeded");
  ASSERT_EQ(job.at("attempts").size(), 2U);
  EXPECT_GE(job.at("attempts")[1].at("resumed_from_step"), 20) << "it began anew rather than at its saved step";
  // The last rows may come a moment after the news of its end.
  world.until("1", [](const Json& view) { return view.at("step") == 200; });
  Json rows;
  eventually([&] { return (rows = world.metrics("1")).size() >= 200U; }, 60s);
  ASSERT_EQ(rows.size(), 200U);
  EXPECT_NEAR(rows.back().at("loss").get<double>(), std::pow(3 * std::pow(0.98, 200), 2), 1e-9);
}

TEST(Examples, AnyProgramResumesWhereItLeftAndSucceeds) {
  World world;
  world.start_daemon();
  const auto submitted = world.cli({"submit", kSource / "examples/any-program.toml", "--set", "env.STEPS=60"});
  ASSERT_EQ(submitted.exit, 0) << submitted.err;
  ASSERT_TRUE(eventually(
      [&] {
        return world.cli({"logs", "1", "--rank", "0"}).out.find("step 3") != std::string::npos;
      },
      30s));
  EXPECT_EQ(world.cli({"requeue", "1"}).exit, 0);
  const auto job = world.until_state("1", "succeeded");
  EXPECT_EQ(job.at("attempts").size(), 2U);
  EXPECT_THAT(world.cli({"logs", "1", "--attempt", "1"}).out, HasSubstr("asked to leave: saved step"));
  const auto logs = world.cli({"logs", "1", "--rank", "1"}).out;
  EXPECT_THAT(logs, HasSubstr("attempt 2: rank 1 of 2 begins after step"));
  EXPECT_EQ(logs.find("\nstep 1 of"), std::string::npos) << "it began anew rather than at its saved step";
  EXPECT_THAT(logs, HasSubstr("step 60 of 60"));
}

TEST(Examples, AnUnchangedProgramHasCurvesAndABudgetThatRefills) {
  World world;
  world.start_daemon();
  const auto submitted = world.cli({"submit", kSource / "examples/unchanged-program.toml"});
  ASSERT_EQ(submitted.exit, 0) << submitted.err;
  world.until_state("1", "succeeded");
  // The last rows may come a moment after the news of its end.
  const auto job = world.until("1", [](const Json& view) { return view.at("step") == 60; });
  ASSERT_EQ(job.at("attempts").size(), 3U) << "it dies twice, and one new attempt is allowed without progress";
  EXPECT_EQ(job.at("last_checkpoint_step"), 60);
  Json newest;
  eventually([&] { return (newest = world.metrics("1").back()).at("step") == 60; }, 60s);
  EXPECT_EQ(newest.at("step"), 60);
  EXPECT_EQ(newest.at("loss"), 1.0);
}

/// Processes that have this text in their command line.
int processes_with(const std::string& text) {
  int count = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator at("/proc", error), end; !error && at != end; at.increment(error)) {
    if (read_file(at->path() / "cmdline").find(text) != std::string::npos) ++count;
  }
  return count;
}

TEST(Demo, InterruptedTwiceItLeavesNoProcessAndNoFiles) {
  TemporaryFolder folder;
  const auto out = folder.path() / "out", temporary = folder.path() / "tmp";
  std::filesystem::create_directory(temporary);
  Process demo({"/usr/bin/env", "python3", "-B", kSource / "tools/demo.py", "--bin", ::test::build_folder() + "/bin"},
               {{"TMPDIR", temporary}}, out, folder.path() / "err");
  ASSERT_TRUE(eventually([&] { return read_file(out).find("attempt 1  step") != std::string::npos; }, 60s))
      << read_file(out) << read_file(folder.path() / "err");
  ASSERT_GT(processes_with(temporary), 0);
  demo.signal(SIGINT);
  ASSERT_TRUE(
      eventually([&] { return read_file(folder.path() / "err").find("interrupted") != std::string::npos; }, 20s));
  demo.signal(SIGINT);
  EXPECT_EQ(demo.wait(60s), 130) << read_file(folder.path() / "err");
  EXPECT_TRUE(eventually([&] { return processes_with(temporary) == 0; }, 5s));
  EXPECT_TRUE(std::filesystem::is_empty(temporary));
}

}  // namespace
}  // namespace test
