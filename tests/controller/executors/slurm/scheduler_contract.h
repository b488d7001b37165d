#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "slurm/batch_script.h"
#include "slurm/scheduler.h"

namespace executors::on_slurm::testing {

/// A Slurm, and the jobs' side of it. What it is asked becomes true at once or a little later.
class SchedulerWorld {
 public:
  virtual ~SchedulerWorld() = default;
  virtual ::slurm::Scheduler& slurm() = 0;
  /// The command that a job of the contract runs: it ends when finish() says so.
  virtual std::vector<std::string> command() const = 0;
  /// Gives a job that may run its nodes.
  virtual void start(const ::slurm::JobId& id) = 0;
  /// A person, or an admin, has the job start again.
  virtual void requeue(const ::slurm::JobId& id) = 0;
  /// Ends the script of every job that runs, with this code.
  virtual void finish(int code) = 0;
};

/// Behaviour that the fake Slurm of our tests and the real one share: everything that tests with the fake rely on. One
/// program instantiates it for each.
class SchedulerContract : public ::testing::TestWithParam<std::function<std::unique_ptr<SchedulerWorld>()>> {
 protected:
  void SetUp() override { world_ = GetParam()(); }

  ::slurm::Scheduler& slurm() { return world_->slurm(); }
  SchedulerWorld& world() { return *world_; }
  ::slurm::BatchScript job(const std::string& comment) const;
  ::slurm::JobId submit(const ::slurm::BatchScript& job);
  /// The job as it is listed; nullopt: it is not.
  std::optional<::slurm::ListedJob> look(const ::slurm::JobId& id);
  /// Polls until it is listed in this state.
  bool reaches(const ::slurm::JobId& id, ::slurm::JobState state);
  /// Submitted, and with its nodes.
  ::slurm::JobId running(const std::string& comment);

 private:
  std::unique_ptr<SchedulerWorld> world_;
};

}  // namespace executors::on_slurm::testing
