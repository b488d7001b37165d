// Goal: any program that writes a report file has curves, progress, a true FROM and hang detection, as recipes have.
// Method: a shell script and a plain Python loop under the real controller, which is killed meanwhile in one story.
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "tests/places.h"
#include "tests/system/world.h"

namespace test {
namespace {

/// A job of ranks that run a Python program with the package of this repository.
std::string python_job(const std::string& program, const std::string& more = "") {
  return "name = \"python\"\ncommand = [\"python3\", \"-B\", \"-c\", '''\n" + program + "''']\n[env]\nPYTHONPATH = \"" +
         ::test::source_folder() + "/python\"\n" + more;
}

/// The numbers of one series in the order of the rows: those that are there.
std::vector<std::pair<int, double>> series(const Json& rows, const std::string& name) {
  std::vector<std::pair<int, double>> out;
  for (const auto& row : rows) {
    if (row.contains(name) && row.at(name).is_number()) out.emplace_back(row.at("step"), row.at(name).get<double>());
  }
  return out;
}

/// The numbers of a series once there are so many. News of a program's end does not wait long for its last rows.
std::vector<std::pair<int, double>> until_series(World& world, const std::string& job, const std::string& name,
                                                 std::size_t count) {
  std::vector<std::pair<int, double>> found;
  eventually([&] { return (found = series(world.metrics(job), name)).size() >= count; }, 60s);
  return found;
}

/// Waits until the program has reported this step.
void until_reported(World& world, const std::string& job, int step) {
  world.until(job, [&](const Json& view) { return view.at("step").is_number() && view.at("step") >= step; });
}

/// Waits until an attempt, from 1, has told from which step it went on. An attempt that is over can tell no more.
void until_resumed(World& world, const std::string& job, std::size_t number) {
  world.until(job, [&](const Json& view) {
    const auto& attempts = view.at("attempts");
    return attempts.size() >= number && attempts.at(number - 1).at("resumed_from_step").is_number();
  });
}

void until_saved(World& world, const std::string& job, int step) {
  world.until(job, [&](const Json& view) { return view.at("last_checkpoint_step") == step; });
}

TEST(Reports, AShellScriptNeedsNoLibraryForItsCurves) {
  World world;
  world.start_daemon();
  const auto job = world.submit(
      shell_job("for i in 1 2 3; do echo \"{\\\"step\\\":$i,\\\"loss\\\":$i.5,\\\"eval_accuracy\\\":0.$i}\" >> "
                "$MUSTER_REPORT; done\n"
                "echo 'no report at all' >> $MUSTER_REPORT"));
  world.until_state(job, "succeeded");
  EXPECT_EQ(until_series(world, job, "loss", 3), (std::vector<std::pair<int, double>>{{1, 1.5}, {2, 2.5}, {3, 3.5}}))
      << world.metrics(job);
  world.until(job, [](const Json& view) { return view.at("step") == 3; });
}

TEST(Reports, APythonLoopThatIsKilledGoesOnFromItsCheckpoint) {
  World world;
  world.start_daemon();
  const auto job =
      world.submit(python_job(R"(
import os, signal, time, muster
path = os.path.join(os.environ["MUSTER_CHECKPOINT_FOLDER"], "step")
def load():
    return int(open(path).read()) if os.path.exists(path) else 0
run = muster.init(total_steps=60, config={"lr": 0.5})
for step in range(run.resume(load) + 1, 61):
    run.log(step, loss=100.0 / step)
    if step % 10 == 0:
        if run.rank == 0:
            with open(path + ".new", "w") as file: file.write(str(step))
            os.replace(path + ".new", path)
        run.checkpoint(path, step)
    if step == 25 and run.attempt == 1:
        run.flush()
        while run.rank == 0 or not os.path.exists("die"): time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
while not os.path.exists("end"): time.sleep(0.01)
)",
                              "[resources]\nranks_per_node = 2\n[requeue]\nbackoff_initial = \"100ms\"\n"));
  until_reported(world, job, 25);
  until_resumed(world, job, 1);
  until_saved(world, job, 20);
  write_file(world.folder() / "die", "");
  until_resumed(world, job, 2);
  write_file(world.folder() / "end", "");
  const auto done = world.until_state(job, "succeeded");
  const auto& attempts = done.at("attempts");
  ASSERT_EQ(attempts.size(), 2u) << done;
  EXPECT_EQ(attempts[0].at("resumed_from_step"), 0) << attempts;
  EXPECT_EQ(attempts[1].at("resumed_from_step"), 20) << attempts;
  std::map<int, double> newest;
  const auto all_are_there = [&] {
    for (const auto& [step, loss] : series(world.metrics(job), "loss")) newest[step] = loss;
    return newest.size() >= 60;
  };
  EXPECT_TRUE(eventually(all_are_there, 60s));
  ASSERT_EQ(newest.size(), 60u);
  for (const auto& [step, loss] : newest) EXPECT_DOUBLE_EQ(loss, 100.0 / step);
}

// The last reports of rank 0 take longer than the end of rank 1, which has none.
TEST(Reports, TheRankThatFailsFirstIsTheCulpritThoughItReports) {
  World world;
  world.start_daemon();
  const auto job =
      world.submit(shell_job("if [ $RANK = 0 ]; then echo '{\"step\":1,\"loss\":2}' >> $MUSTER_REPORT; sleep 0.5; echo "
                             "$$ > pid0; exit 93; fi\n"
                             "while [ ! -s pid0 ] || kill -0 $(cat pid0) 2> /dev/null; do sleep 0.005; done; exit 4",
                             "[resources]\nranks_per_node = 2\n"));
  const auto done = world.until_state(job, "failed");
  EXPECT_EQ(done.at("attempts")[0].at("rank"), 0) << done.at("attempts");
  EXPECT_EQ(done.at("attempts")[0].at("exit_code"), 93) << done.at("attempts");
}

TEST(Reports, AProgramThatStopsReportingHangs) {
  World world;
  world.start_daemon();
  const auto job =
      world.submit(python_job(R"(
import muster, time
run = muster.init(total_steps=60)
if run.attempt == 1:
    for step in range(1, 6): run.log(step, loss=1.0)
    time.sleep(600)
)",
                              "[liveness]\nhung_after = \"3s\"\n[requeue]\nbackoff_initial = \"100ms\"\n"));
  const auto done = world.until_state(job, "succeeded");
  ASSERT_EQ(done.at("attempts").size(), 2u);
  EXPECT_EQ(done.at("attempts")[0].at("cause"), "rank_hung") << done;
}

TEST(Reports, AHangIsSuspectedWithinWhatTheStepsHaveTaughtAndTheProgramGoesOn) {
  World world;
  world.start_daemon();
  const auto job = world.submit(python_job(R"(
import muster, os, time
run = muster.init()
for step in range(1, 61):
    run.log(step, loss=1.0)
    time.sleep(0.1)
    while step == 40 and not os.path.exists("go-on"): time.sleep(0.01)
while not os.path.exists("end"): time.sleep(0.01)
)"));
  const auto suspected = world.until(job, [](const Json& view) { return view.at("status") == "running, suspected"; });
  const std::string reason = suspected.at("reason");
  EXPECT_NE(reason.find("rank 0 has made no progress since "), std::string::npos) << reason;
  // Ten seconds at the least, and more where a busy machine has held up a step.
  const std::string usual = "in section step, longer than the usual ";
  const auto at = reason.find(usual);
  ASSERT_NE(at, std::string::npos) << reason;
  std::istringstream words(reason.substr(at + usual.size()));
  int seconds = 0;
  std::string rest;
  std::getline(words >> seconds, rest);
  EXPECT_GE(seconds, 10) << reason;
  EXPECT_LE(seconds, 30) << reason;
  EXPECT_TRUE(rest.starts_with(" s (learned from ")) << reason;
  EXPECT_NE(reason.find("ends after 10 min without progress and output"), std::string::npos) << reason;
  EXPECT_NE(world.cli({"why", job}).out.find("liveness.hung_after"), std::string::npos);
  write_file(world.folder() / "go-on", "");
  world.until(job, [](const Json& view) { return view.at("status") == "running"; });
  write_file(world.folder() / "end", "");
  const auto done = world.until_state(job, "succeeded");
  EXPECT_EQ(done.at("attempts").size(), 1u);
  const auto events = world.cli({"events", job}).out;
  EXPECT_NE(events.find("there is progress again, after "), std::string::npos) << events;
}

TEST(Reports, WhatAProgramSaysOfItselfReachesPeopleAndStays) {
  World world;
  world.start_daemon();
  const auto job = world.submit(python_job(R"(
import muster, os, time
run = muster.init(total_steps=80, config={"lr": 0.5, "optimizer": {"name": "adam"}, "api_key": "hidden"})
open(os.environ["MUSTER_REPORT"], "a").write("no report at all\n")
run.status("evaluates the model")
run.log(7, loss=1.0)
path = os.path.abspath("ckpt-7")
open(path, "w").write("1234")
run.checkpoint(path, 7)
with run.section("evaluate"):
    run.flush()
    while not os.path.exists("go-on"): time.sleep(0.01)
raise ValueError("the data is gone")
)",
                                           "[requeue]\nmax_failed = 0\n"));
  const auto live = world.until(job, [&](const Json& view) {
    return !view.at("ranks").empty() && view.at("ranks")[0].at("section") == "evaluate" &&
           view.at("checkpoints").size() == 1;
  });
  EXPECT_EQ(live.at("program_status"), "evaluates the model") << live;
  EXPECT_EQ(live.at("steps_total"), 80);
  EXPECT_EQ(
      live.at("hang_limit"),
      "30 min until 20 stays are timed, then learned from them, in section evaluate; a hang ends the attempt after "
      "30 min without progress and output");
  world.kill_daemon();
  world.start_daemon();
  std::ofstream(world.folder() / "go-on") << "1";
  const auto done = world.until_state(job, "failed");
  EXPECT_EQ(done.at("program_status"), "evaluates the model") << done;
  EXPECT_EQ(done.at("steps_total"), 80);
  EXPECT_EQ(done.at("config").at("lr"), "0.5");
  EXPECT_EQ(done.at("config").at("optimizer.name"), "adam");
  EXPECT_EQ(done.at("config").at("api_key"), "********");
  const auto& saved = done.at("checkpoints")[0];
  EXPECT_EQ(saved.at("step"), 7);
  EXPECT_EQ(saved.at("bytes"), 4);
  EXPECT_TRUE(std::string(saved.at("path")).ends_with("/ckpt-7")) << saved;
  EXPECT_EQ(done.at("attempts")[0].at("error"), "ValueError: the data is gone");
  EXPECT_NE(std::string(done.at("attempts")[0].at("trace")).find("ValueError: the data is gone"), std::string::npos);
  EXPECT_NE(done.at("notes").dump().find("1 line of its report files cannot be read"), std::string::npos)
      << done.at("notes");
  const auto list = Json::parse(world.cli({"list", "--json"}).out);
  EXPECT_EQ(list.at(0).at("program_status"), "evaluates the model");
  EXPECT_EQ(list.at(0).at("steps_total"), 80);
}

TEST(Reports, RanksOfUnlikeSpeedLeaveAfterTheSameStep) {
  World world;
  world.start_daemon();
  const auto job = world.submit(python_job(R"(
import muster, os, time
run = muster.init(total_steps=100000)
if run.attempt == 1:
    for step in range(1, 100000):
        time.sleep(0.02 if run.rank == 0 else 0.03)
        run.log(step, loss=1.0)
        if run.should_stop(step):
            open(f"left-{run.rank}", "w").write(f"{step} {run.stop.at_step}")
            run.leave()
)",
                                           "[resources]\nranks_per_node = 2\nstop_grace = \"1m\"\n"));
  until_reported(world, job, 20);
  world.until(job, [&](const Json& view) { return view.at("ranks")[1].at("step").is_number(); });
  EXPECT_EQ(world.cli({"requeue", job}).exit, 0);
  world.until_state(job, "succeeded");
  const auto first = read_file(world.folder() / "left-0");
  EXPECT_EQ(read_file(world.folder() / "left-1"), first);
  std::istringstream words(first);
  int step = 0, at_step = -1;
  words >> step >> at_step;
  EXPECT_EQ(step, at_step) << first;
}

TEST(Reports, NothingIsLostWhileTheControllerIsAway) {
  World world;
  world.start_daemon();
  const auto job = world.submit(python_job(R"(
import muster, time
run = muster.init(total_steps=200)
for step in range(1, 201):
    run.log(step, loss=float(step))
    time.sleep(0.02)
)"));
  until_reported(world, job, 20);
  world.kill_daemon();
  std::this_thread::sleep_for(2s);  // the length of the outage, in which some hundred steps are done
  world.start_daemon();
  world.until_state(job, "succeeded");
  const auto loss = until_series(world, job, "loss", 200);
  ASSERT_EQ(loss.size(), 200u);
  for (const auto& [step, value] : loss) EXPECT_EQ(step, value);
  EXPECT_EQ(world.show(job).at("attempts").size(), 1u);
}

// The agent stands still while the program reports, and is killed then: nobody has told what the file holds.
TEST(Reports, WhatIsInTheFileOfAKilledAgentIsReadByTheController) {
  World world;
  world.start_daemon();
  const auto job = world.submit(shell_job(R"(tell() { echo "$1" >> $MUSTER_REPORT; }
[ $MUSTER_ATTEMPT = 2 ] && exit 0
kill -STOP $PPID
tell '{"resumed":0}'
tell '{"total_steps":90,"config":{"lr":0.5}}'
for i in $(seq 30); do tell "{\"step\":$i,\"loss\":$i.5}"; done
tell '{"checkpoint":"c30","step":30,"bytes":7}'
echo 'no report' >> $MUSTER_REPORT
kill -KILL $PPID; sleep 600)"));
  const auto done = world.until_state(job, "succeeded");
  EXPECT_EQ(done.at("attempts")[0].at("cause"), "controller_lost") << done.at("attempts");
  EXPECT_EQ(done.at("attempts")[0].at("resumed_from_step"), 0) << done.at("attempts");
  EXPECT_EQ(done.at("last_checkpoint_step"), 30);
  EXPECT_EQ(done.at("steps_total"), 90);
  EXPECT_EQ(done.at("config").at("lr"), "0.5") << done.at("config");
  const auto loss = until_series(world, job, "loss", 30);
  ASSERT_EQ(loss.size(), 30u);
  for (const auto& [step, value] : loss) EXPECT_EQ(value, step + 0.5);
}

// Five more steps and then an error, over and over: the budget of three new attempts refills with each checkpoint. The
// test sees each attempt's reports before the error.
TEST(Reports, AFlakyProgramFinishesAllItsSteps) {
  World world;
  world.start_daemon();
  const auto job = world.submit(python_job(R"(
import muster, os, sys, time
path = os.path.join(os.environ["MUSTER_CHECKPOINT_FOLDER"], "step")
run = muster.init(total_steps=60)
start = run.resume(lambda: int(open(path).read()) if os.path.exists(path) else 0)
for step in range(start + 1, 61):
    run.log(step, loss=1.0 / step)
    with open(path, "w") as file: file.write(str(step))
    run.checkpoint(path, step)
    if step == start + 5:
        while not os.path.exists(f"go-{step}"): time.sleep(0.01)
        if step < 60: sys.exit(1)
)",
                                           "[requeue]\nmax_failed = 3\nbackoff_initial = \"50ms\"\n"
                                           "backoff_max = \"50ms\"\n"));
  for (int attempt = 1; attempt <= 12; ++attempt) {
    until_resumed(world, job, static_cast<std::size_t>(attempt));
    until_saved(world, job, 5 * attempt);
    write_file(world.folder() / ("go-" + std::to_string(5 * attempt)), "");
  }
  const auto done = world.until_state(job, "succeeded");
  ASSERT_EQ(done.at("attempts").size(), 12u) << done.at("attempts");
  for (int attempt = 0; attempt < 12; ++attempt) {
    EXPECT_EQ(done.at("attempts")[attempt].at("resumed_from_step"), 5 * attempt) << done.at("attempts");
  }
  EXPECT_EQ(until_series(world, job, "loss", 60).size(), 60u);
}

// Lines of 10 MB that are no reports, and steps as fast as a shell's pipe gives them.
TEST(Reports, AFloodHarmsNobody) {
  World world;
  world.start_daemon();
  const auto flood = world.submit(python_job(R"(
import os
file = os.open(os.environ["MUSTER_REPORT"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
def tell(line):
    while line: line = line[os.write(file, line):]
for i in range(3): tell(b'{"step":1,"note":"' + b"x" * 10_000_000 + b'"}\n')
for first in range(1, 60_001, 500):
    tell(b"".join(b'{"step":%d,"loss":%d.5}\n' % (step, step) for step in range(first, first + 500)))
)"));
  const auto other = world.submit(python_job(R"(
import muster, time
run = muster.init(total_steps=40)
for step in range(1, 41):
    run.log(step, loss=float(step))
    time.sleep(0.05)
)"));
  world.until_state(flood, "succeeded");
  // The end of a rank is told apart from its reports, of which the last may come a moment later.
  const auto done = world.until(flood, [](const auto& job) { return job.at("step") == 60'000; });
  EXPECT_EQ(done.at("attempts").size(), 1u) << done;
  EXPECT_NE(done.at("notes").dump().find("of its report files cannot be read"), std::string::npos) << done.at("notes");
  EXPECT_EQ(world.until_state(other, "succeeded").at("attempts").size(), 1u);
  EXPECT_EQ(until_series(world, other, "loss", 40).size(), 40u) << "the other job lost nothing";
}

/// All steps from 1 on are stored, soon, and nothing says that some may be missing.
void expect_every_step(World& world, const std::string& job, int steps, const std::string& series = "loss") {
  const auto done = world.until(job, [&](const Json& view) { return view.at("step") == steps; });
  EXPECT_EQ(done.at("notes").dump().find("older steps"), std::string::npos) << done.at("notes");
  Finished csv;
  int count = 0;
  const auto all_are_there = [&] {
    csv = world.cli({"metrics", job, "--csv", "--series", series}, 120s);
    std::istringstream rows(csv.out);
    std::string row;
    std::getline(rows, row);
    for (count = 0; std::getline(rows, row);) ++count;
    return count >= steps;
  };
  eventually(all_are_there, 60s);
  EXPECT_EQ(count, steps) << csv.err << world.cli({"events", job}).out;
}

/// More steps at once than an agent keeps in memory, and the end of the program right behind them.
void expect_every_step_of_a_burst(int steps, const std::string& job_file, std::chrono::milliseconds limit) {
  World world;
  world.start_daemon();
  const auto job = world.submit(job_file);
  world.until_state(job, "succeeded", limit);
  expect_every_step(world, job, steps);
}

std::string burst_of_reports(int steps) {
  return python_job("steps = " + std::to_string(steps) + R"(
import os
lines = b"".join(b'{"step":%d,"loss":%d}\n' % (step, step) for step in range(1, steps + 1))
file = os.open(os.environ["MUSTER_REPORT"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
while lines: lines = lines[os.write(file, lines):]
)");
}

/// A burst of the same steps in the words of the program's log.
std::string burst_of_lines(int steps) {
  return python_job("steps = " + std::to_string(steps) + R"(
import sys
sys.stdout.write("".join(f"step {step} loss {step}.5\n" for step in range(1, steps + 1)))
)",
                    "[report.log]\nstep = 'step (\\d+)'\nloss = 'loss (\\S+)'\n");
}

TEST(Reports, ABurstIsStoredWhole) {
  expect_every_step_of_a_burst(150'000, burst_of_reports(150'000), 120s);
}

TEST(Reports, ABurstOfLogLinesIsStoredWhole) {
  expect_every_step_of_a_burst(150'000, burst_of_lines(150'000), 120s);
}

/// Waits until the first attempt has ended, as its agent has written down.
void until_ended_on_disk(World& world, const std::string& job) {
  const auto status = world.data() / "jobs" / job / "attempt-1" / "status.jsonl";
  EXPECT_TRUE(eventually([&] { return read_file(status).find("\"ended\"") != std::string::npos; }, 60s));
}

// The news of a failure does not wait for a musterd that takes nothing: other ranks may hang because of the one that
// failed. What it takes later is told after that news.
TEST(Reports, ABurstBeforeAFailureIsStoredWholeThoughMusterdStandsStill) {
  constexpr int kSteps = 150'000;
  World world;
  world.start_daemon();
  const auto burst = world.folder() / "burst";
  const auto job = world.submit(python_job("burst = '" + burst.string() + "'; steps = " + std::to_string(kSteps) + R"(
import os, sys, time
print("step 1 loss 1.5", flush=True)
while not os.path.exists(burst): time.sleep(0.01)
sys.stdout.write("".join(f"step {step} loss {step}.5\n" for step in range(2, steps + 1)))
sys.exit(3)
)",
                                           "[requeue]\nmax_failed = 0\n[report.log]\nstep = 'step (\\d+)'\n"
                                           "loss = 'loss (\\S+)'\n"));
  until_reported(world, job, 1);
  world.daemon().signal(SIGSTOP);
  write_file(burst, "");
  until_ended_on_disk(world, job);
  world.daemon().signal(SIGCONT);
  world.until_state(job, "failed");
  expect_every_step(world, job, kSteps);
}

// Rank 0 writes event files, which nobody but its agent reads, and rank 1 its report file. The agents tell the next
// musterd what the one before was killed over, though the job is over.
TEST(Reports, BurstsOfTwoRanksBeforeAFailureAreStoredWholeThoughMusterdIsKilled) {
  constexpr int kSteps = 150'000;
  World world;
  world.start_daemon();
  const auto burst = world.folder() / "burst";
  const auto job = world.submit(python_job("burst = '" + burst.string() + "'; steps = " + std::to_string(kSteps) + R"(
import os, struct, sys, time
table = []
for byte in range(256):
    for bit in range(8): byte = byte >> 1 ^ (0x82f63b78 if byte & 1 else 0)
    table.append(byte)
def masked(data):
    crc = 0xffffffff
    for byte in data: crc = table[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xffffffff
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff)
def field(number, data): return bytes([number << 3 | 2, len(data)]) + data
def varint(number):
    data = b""
    while number > 127: data, number = data + bytes([number & 127 | 128]), number >> 7
    return data + bytes([number])
def record(data):
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)
def scalar(step):
    value = field(1, field(1, b"loss") + b"\x15" + struct.pack("<f", 0.5))
    return record(b"\x09" + struct.pack("<d", 10.0) + b"\x10" + varint(step) + field(5, value))
def line(step): return b'{"step":%d,"second":0.5}\n' % step
is_first = os.environ["RANK"] == "0"
os.makedirs("runs", exist_ok=True)
file = open("runs/events.out.tfevents.1.host" if is_first else os.environ["MUSTER_REPORT"], "ab", buffering=0)
told = scalar if is_first else line
file.write(told(1))
rest = b"".join(told(step) for step in range(2, steps + 1))
while not os.path.exists(burst): time.sleep(0.01)
file.write(rest)
sys.exit(3)
)",
                                           "[resources]\nranks_per_node = 2\n[requeue]\nmax_failed = 0\n"
                                           "[report]\ntensorboard = 'runs'\n"));
  world.until(job, [](const Json& view) {
    const auto& ranks = view.at("ranks");
    return ranks.size() == 2 && ranks[0].at("step") == 1 && ranks[1].at("step") == 1;
  });
  world.daemon().signal(SIGSTOP);
  write_file(burst, "");
  until_ended_on_disk(world, job);
  world.kill_daemon();
  world.start_daemon();
  world.until_state(job, "failed");
  expect_every_step(world, job, kSteps);
  expect_every_step(world, job, kSteps, "second");
}

TEST(Reports, AMillionLinesAtOnceAreStoredWhole) {
  expect_every_step_of_a_burst(1'000'000, burst_of_reports(1'000'000), 400s);
}

TEST(Reports, AMillionLogLinesAtOnceAreStoredWhole) {
  expect_every_step_of_a_burst(1'000'000, burst_of_lines(1'000'000), 400s);
}

TEST(Reports, ASilentProgramIsWatchedAsBeforeAndKeysWithoutEffectAreNamed) {
  World world;
  world.start_daemon();
  const auto job =
      world.submit(shell_job("while [ ! -e go-on ]; do sleep 0.02; done; echo '{\"step\":1}' >> "
                             "$MUSTER_REPORT; while [ ! -e leave ]; do sleep 0.02; done",
                             "[liveness]\nhung_after = \"40m\"\n"));
  const std::string note = "liveness.hung_after has no effect while this program reports no steps";
  const auto notes = [&] { return world.show(job).at("notes").dump(); };
  const auto silent = world.until_state(job, "running");
  EXPECT_NE(silent.at("notes").dump().find(note), std::string::npos) << silent.at("notes");
  EXPECT_TRUE(silent.at("step").is_null()) << "an unknown step is no number";
  EXPECT_NE(world.cli({"why", job}).out.find(note), std::string::npos);
  std::ofstream(world.folder() / "go-on") << "1";
  until_reported(world, job, 1);
  EXPECT_EQ(notes().find("no effect"), std::string::npos) << notes();
  std::ofstream(world.folder() / "leave") << "1";
  world.until_state(job, "succeeded");
}

TEST(Reports, AProgramThatIsAskedToLeaveSavesAndComesBack) {
  World world;
  world.start_daemon();
  const auto job = world.submit(python_job(R"(
import muster, os, time
path = os.path.join(os.environ["MUSTER_CHECKPOINT_FOLDER"], "step")
run = muster.init(total_steps=100000)
start = run.resume(lambda: int(open(path).read()) if os.path.exists(path) else 0)
for step in range(start + 1, start + 3000):
    run.log(step, loss=1.0)
    if run.attempt == 2 and step == start + 5:
        while not os.path.exists("end"): time.sleep(0.01)
        break
    if run.should_stop(step):
        open(path, "w").write(str(step))
        run.checkpoint(path, step)
        run.leave()
    time.sleep(0.02)
)"));
  until_reported(world, job, 5);
  EXPECT_EQ(world.cli({"requeue", job}).exit, 0);
  until_resumed(world, job, 2);
  write_file(world.folder() / "end", "");
  const auto done = world.until_state(job, "succeeded");
  ASSERT_EQ(done.at("attempts").size(), 2u) << done;
  const auto saved = std::stoi(read_file(world.checkpoints(job) / "step"));
  EXPECT_GE(saved, 5);
  EXPECT_EQ(done.at("attempts")[1].at("resumed_from_step"), saved) << done;
}

}  // namespace
}  // namespace test
