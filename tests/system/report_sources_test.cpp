// Goal: a program that was not changed has curves, steps and checkpoints by [report] of its job file alone.
// Method: a shell script that prints and saves, and a Python program that writes TensorBoard's files, under the real
// controller. Most scripts wait before their end until the test has seen what they have told, because the news of an
// end does not wait long for it.
#include "tests/system/world.h"

namespace test {
namespace {

/// The values of one series by steps, over all attempts.
std::map<int, double> curve(const Json& rows, const std::string& name) {
  std::map<int, double> out;
  for (const auto& row : rows) {
    if (row.contains(name) && row.at(name).is_number()) out[row.at("step")] = row.at(name).get<double>();
  }
  return out;
}

std::map<int, double> halves(int last) {
  std::map<int, double> out;
  for (int step = 1; step <= last; ++step) out[step] = step + 0.5;
  return out;
}

/// The curve of a series once it is as wanted, or after the limit.
std::map<int, double> until_curve(World& world, const std::string& job, const std::string& name,
                                  const std::map<int, double>& wanted) {
  std::map<int, double> found;
  eventually([&] { return (found = curve(world.metrics(job), name)) == wanted; }, 60s);
  return found;
}

Json until_reported(World& world, const std::string& job, int step) {
  return world.until(job, [&](const Json& view) { return view.at("step").is_number() && view.at("step") >= step; });
}

void until_saved(World& world, const std::string& job, int step) {
  world.until(job, [&](const Json& view) { return view.at("last_checkpoint_step") == step; });
}

// Each attempt dies while it writes the archive of a new step, as torch.save writes one. New files are no progress.
TEST(ReportSources, AProgramThatAlwaysDiesWhileItSavesIsEndedByItsBudget) {
  World world;
  world.start_daemon();
  const auto job = world.submit(shell_job(
      R"sh(mkdir -p ckpt/step-$((MUSTER_ATTEMPT * 10)); echo "step $((MUSTER_ATTEMPT * 10))"
printf 'PK\003\004half of the weights' > ckpt/step-$((MUSTER_ATTEMPT * 10))/model.pt
sleep 3; kill -KILL $$)sh",
      R"(max_failed = 1
[report]
checkpoints = "ckpt/step-*"
log = {step = 'step (\d+)'}
)"));
  const auto done = world.until_state(job, "failed");
  EXPECT_EQ(done.at("attempts").size(), 2u) << done;
  EXPECT_EQ(done.at("last_checkpoint_step"), 0);
  EXPECT_NE(done.at("notes").dump().find("was cut off, so it is no checkpoint: model.pt has no end"), std::string::npos)
      << done.at("notes");
}

TEST(ReportSources, AResumeAndTheTotalAreReadFromTheLog) {
  World world;
  world.start_daemon();
  const auto job = world.submit(shell_job(
      R"(start=0; if [ -e ckpt/step-10/model ]; then start=10; echo "resuming from step 10"; fi
for i in $(seq $((start + 1)) 20); do
  echo "step $i/20 loss $i.5"
  if [ $i = 10 ]; then
    mkdir -p ckpt/step-10; echo weights > ckpt/step-10/model
    while [ ! -e go ]; do sleep 0.02; done; kill -KILL $$
  fi
done
while [ ! -e end ]; do sleep 0.02; done)",
      R"(max_failed = 2
[report]
checkpoints = "ckpt/step-*"
log = {loss = 'loss ([\d.]+)', step = 'step (\d+)/', total = '/(\d+)', resumed = 'resuming from step (\d+)'}
)"));
  const auto folder = std::filesystem::path(world.show(job).at("spec").at("working_folder").get<std::string>());
  until_saved(world, job, 10);
  write_file(folder / "go", "");
  world.until(job, [](const Json& view) {
    return view.at("attempts").size() == 2 && view.at("attempts")[1].at("resumed_from_step").is_number();
  });
  write_file(folder / "end", "");
  const auto done = world.until_state(job, "succeeded");
  ASSERT_EQ(done.at("attempts").size(), 2u) << done;
  EXPECT_EQ(done.at("attempts")[0].at("resumed_from_step"), nullptr);
  EXPECT_EQ(done.at("attempts")[1].at("resumed_from_step"), 10);
  EXPECT_EQ(done.at("steps_total"), 20);
}

// Attempt 1 is killed after the checkpoint of step 10 and attempt 2 after that of step 20. One new attempt is allowed,
// so attempt 3 needs a budget that was refilled. Attempt 3 saves once more and ends at once.
TEST(ReportSources, AProgramThatOnlyPrintsAndSavesComesBackWithItsBudgetRefilled) {
  World world;
  world.start_daemon();
  const auto job = world.submit(shell_job(
      R"(start=0
for i in 10 20; do if [ -e ckpt/step-$i/model ]; then start=$i; fi; done
for i in $(seq $((start + 1)) 30); do
  printf 'step %d \033[32mloss\033[0m %d.5\r' $i $i
  if [ $i = 30 ]; then while [ ! -e end ]; do sleep 0.02; done; fi
  if [ $((i % 10)) = 0 ]; then mkdir -p ckpt/step-$i; echo weights > ckpt/step-$i/model; fi
  if [ $i = $((start + 15)) ]; then while [ ! -e go-$i ]; do sleep 0.02; done; kill -KILL $$; fi
  sleep 0.02
done)",
      R"(max_failed = 1
[report]
checkpoints = "ckpt/step-*"
log = {loss = 'loss ([\d.]+)', step = 'step (\d+)'}
)"));
  const auto folder = std::filesystem::path(world.show(job).at("spec").at("working_folder").get<std::string>());
  until_saved(world, job, 10);
  EXPECT_EQ(until_reported(world, job, 14).at("attempts").size(), 1u) << "the step is known while it runs";
  write_file(folder / "go-15", "");
  until_saved(world, job, 20);
  write_file(folder / "go-25", "");
  until_reported(world, job, 29);
  write_file(folder / "end", "");
  world.until_state(job, "succeeded");
  const auto done = until_reported(world, job, 30);
  ASSERT_EQ(done.at("attempts").size(), 3u) << done;
  EXPECT_EQ(done.at("attempts")[1].at("cause"), "failed");
  EXPECT_EQ(done.at("last_checkpoint_step"), 30) << "the last one is complete when the program has ended well";
  EXPECT_EQ(done.at("step"), 30);
  EXPECT_EQ(until_curve(world, job, "loss", halves(30)), halves(30));
}

TEST(ReportSources, EachRanksLogIsRead) {
  World world;
  world.start_daemon();
  const auto job = world.submit(shell_job("echo \"step 1 loss $RANK\"; while [ ! -e end ]; do sleep 0.02; done",
                                          R"(
[resources]
ranks_per_node = 2
[report.log]
loss = 'loss ([\d.]+)'
step = 'step (\d+)'
)"));
  const std::map<int, double> wanted{{1, 0.5}};
  EXPECT_EQ(until_curve(world, job, "loss", wanted), wanted) << "the mean of both";
  write_file(world.folder() / "end", "");
  world.until_state(job, "succeeded");
}

TEST(ReportSources, TheScalarsOfTensorBoardAreCurves) {
  World world;
  world.start_daemon();
  const auto job = world.submit(R"(name = "tensorboard"
command = ["python3", "-c", '''
import os, struct, time
table = []
for byte in range(256):
    for _ in range(8): byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    table.append(byte)
def crc(data):
    rest = 0xFFFFFFFF
    for byte in data: rest = table[(rest ^ byte) & 255] ^ rest >> 8
    rest ^= 0xFFFFFFFF
    return struct.pack("<I", ((rest >> 15 | rest << 17) + 0xA282EAD8) & 0xFFFFFFFF)
def field(number, data): return bytes([number << 3 | 2, len(data)]) + data
def record(data):
    length = struct.pack("<Q", len(data))
    return length + crc(length) + data + crc(data)
def scalar(step, value):
    one = field(1, field(1, b"loss") + b"\x15" + struct.pack("<f", value))
    return record(b"\x09" + struct.pack("<d", time.time()) + b"\x10" + bytes([step]) + field(5, one))
folder = "runs/" + os.environ["MUSTER_JOB_ID"]
os.makedirs(folder)
with open(folder + "/events.out.tfevents.1.host", "wb", buffering=0) as file:
    for step in range(1, 41):
        data = scalar(step, step + 0.5)
        file.write(data[:20])
        time.sleep(0.02)
        file.write(data[20:])
while not os.path.exists("end"): time.sleep(0.02)
''']
[report]
tensorboard = "runs/$MUSTER_JOB_ID"
)");
  EXPECT_EQ(until_curve(world, job, "loss", halves(40)), halves(40));
  write_file(world.folder() / "end", "");
  world.until_state(job, "succeeded");
}

// A pattern that is wrong is refused before anything runs.
TEST(ReportSources, ABadPatternIsRefusedAtSubmission) {
  World world;
  world.start_daemon();
  const auto file = world.folder() / "bad.toml";
  write_file(file, "name = \"a\"\ncommand = [\"true\"]\n[report]\nlog = {loss = 'loss ([0-9'}\n");
  const auto refused = world.cli({"submit", file.string()});
  EXPECT_EQ(refused.exit, 2);
  EXPECT_NE(refused.err.find("bad.toml:4:15: report.log.loss \"loss ([0-9\": want a regular expression"),
            std::string::npos)
      << refused.err;
}

}  // namespace
}  // namespace test
