#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/system/process.h"

namespace slurm_cluster {

using namespace std::chrono_literals;

/// The settings of a cluster; the defaults are those of `./dev cluster start`.
struct Options {
  int nodes = 4;
  int cpus = 8;
  /// The time that a job of partition low keeps when one of high preempts it.
  std::chrono::seconds grace = 0s;
  std::chrono::seconds slurmd_timeout = 10s;
  std::chrono::seconds kill_wait = 2s;
  std::chrono::seconds min_job_age = 300s;
  /// A requeued job is held for one second more than this. Slurm's own default is 120 s.
  std::chrono::seconds cred_expire = 5s;
  int max_array_size = 1001;
  /// On: exit code 99 requeues a job, 98 requeues and holds it. Most clusters have it off.
  bool requeue_exit = false;
  /// Each node in a network namespace with an address of its own. Needs root.
  bool separate_network = false;
  /// The nodes cannot resolve each other's names either; this machine never can.
  bool unresolvable_names = false;
  /// slurmdbd with a MariaDB of its own, for sacct. Takes a second or two.
  bool accounting = false;
  /// The kernel holds jobs to the memory that they asked for. Needs root, and control groups of the first version.
  bool memory_limits = false;
  /// More lines of slurm.conf, "Key=Value".
  std::vector<std::string> conf = {};
};

/// A real Slurm of the test's own: munge, slurmctld, nodes with two fake GPUs each; partitions main (default), low and
/// high.
///
/// Lives in a fresh folder under the temporary one. All its processes, jobs included, end with this object, and within
/// a second or two when the test's process dies in whatever way; the folder goes with them. Functions throw
/// std::runtime_error with the reason when the cluster refuses. Not thread-safe.
class Cluster {
 public:
  /// Returns when every node is idle, usually after half a second. Throws, with the daemons' last lines, if that takes
  /// more than about 30 s.
  explicit Cluster(const Options& options = {});
  /// Waits until all is gone. After a failed test it prints the end of slurmctld's log.
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path conf() const { return folder_ / "slurm.conf"; }
  /// The variables that a program needs to use this cluster.
  std::map<std::string, std::string> env() const { return {{"SLURM_CONF", conf().string()}}; }
  /// Where nodes reach servers of this machine: loopback, or with separate_network an address on their network.
  const std::string& host_address() const { return host_address_; }
  /// True if nodes are hosts of their own name that can lose their power, which takes root.
  bool has_namespaces() const { return has_namespaces_; }
  /// The process whose end is the cluster's end, and its child, the parent of all daemons.
  pid_t keeper() const { return keeper_; }
  pid_t guard() const { return guard_; }

  /// Runs a Slurm command, or any other, with this cluster's environment. Over the limit it is killed and has exit -1.
  test::Finished run(const std::vector<std::string>& command, std::chrono::milliseconds limit = 20s) const;

  /// Kills all processes of a node at once, and slurmd with them.
  void power_cut(const std::string& node) const;
  /// Starts the node again, and waits until it can take jobs.
  void power_on(const std::string& node) const;
  /// Takes a node off the network; its processes live on. Needs separate_network.
  void cut_network(const std::string& node) const;
  void mend_network(const std::string& node) const;
  /// SIGKILL; the state on disk stays.
  void kill_ctld() const;
  /// An end in good order.
  void stop_ctld() const;
  void start_ctld() const;
  /// Pids, as this process sees them, of the slurmstepds of a job on a node: one for each step, and one for its batch
  /// script.
  std::vector<pid_t> stepd_pids(const std::string& node, const std::string& job) const;
  /// Kills them; the job's tasks live on. Returns the pids.
  std::vector<pid_t> kill_stepd(const std::string& node, const std::string& job) const;

 private:
  void start(const Options& options);
  void read_report(int from, std::chrono::milliseconds limit);
  void end();
  std::string ask(const std::vector<std::string>& command) const;
  std::vector<pid_t> ask_pids(const std::string& command, const std::string& node, const std::string& job) const;

  std::filesystem::path folder_;
  std::string host_address_;
  bool has_namespaces_ = false;
  pid_t keeper_ = -1;
  pid_t guard_ = -1;
  int lifeline_ = -1;  // the keeper's standard input; closing it ends the cluster
};

}  // namespace slurm_cluster
