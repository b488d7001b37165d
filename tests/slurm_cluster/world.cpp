#include "tests/slurm_cluster/world.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <iomanip>
#include <sstream>

namespace slurm_cluster {
namespace {

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \n");
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \n") - first + 1);
}

bool is_number(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string no_memory_limits() {
  if (getuid() == 0 && access("/sys/fs/cgroup/memory", W_OK) == 0) return {};
  return "limits of memory need root, and control groups of the first version";
}

std::string submit(const Cluster& cluster, const std::vector<std::string>& options, const std::string& script) {
  const auto file = cluster.folder() / "job.sh";
  test::write_file(file, "#!/bin/bash\n" + script + "\n");
  std::vector<std::string> command = {"sbatch", "--parsable", "--chdir", cluster.folder().string()};
  command.insert(command.end(), options.begin(), options.end());
  command.push_back(file.string());
  const auto done = cluster.run(command);
  EXPECT_EQ(done.exit, 0) << done.err;
  return trimmed(done.out);
}

std::string field(const Cluster& cluster, const std::string& job, const std::string& name) {
  return trimmed(cluster.run({"squeue", "--noheader", "-t", "all", "-j", job, "-O", name + ":200"}).out);
}

bool becomes(const Cluster& cluster, const std::string& job, const std::string& name, const std::string& value,
             std::chrono::milliseconds limit) {
  return test::eventually([&] { return field(cluster, job, name) == value; }, limit);
}

std::chrono::seconds time_of(const std::string& text) {
  std::tm parts = {};
  std::istringstream stream(text);
  stream >> std::get_time(&parts, "%Y-%m-%dT%H:%M:%S");
  EXPECT_TRUE(stream) << text;
  return std::chrono::seconds(timegm(&parts));
}

std::vector<pid_t> processes_of(const std::filesystem::path& folder) {
  std::vector<pid_t> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const auto name = entry.path().filename().string();
    if (!is_number(name) || std::stoi(name) == getpid()) continue;
    const auto seen = test::read_file(entry.path() / "cmdline") + test::read_file(entry.path() / "environ");
    if (seen.find(folder.string()) != std::string::npos) found.push_back(std::stoi(name));
  }
  return found;
}

std::vector<pid_t> processes_of(const std::filesystem::path& folder, const std::string& program) {
  auto found = processes_of(folder);
  std::erase_if(found,
                [&](pid_t pid) { return test::read_file("/proc/" + std::to_string(pid) + "/comm") != program + "\n"; });
  return found;
}

}  // namespace slurm_cluster
