#include "tests/controller/executors/slurm/fake_scheduler.h"
#include "tests/controller/executors/slurm/scheduler_contract.h"

namespace executors::on_slurm::testing {
namespace {

class FakeWorld : public SchedulerWorld {
 public:
  ::slurm::Scheduler& slurm() override { return slurm_; }
  std::vector<std::string> command() const override { return {"true"}; }
  void start(const ::slurm::JobId& id) override { slurm_.start(id); }
  void requeue(const ::slurm::JobId& id) override { slurm_.requeue(id); }
  void finish(int code) override { slurm_.finish(code); }

 private:
  FakeScheduler slurm_;
};

INSTANTIATE_TEST_SUITE_P(Fake, SchedulerContract, ::testing::Values([]() -> std::unique_ptr<SchedulerWorld> {
                           return std::make_unique<FakeWorld>();
                         }));

}  // namespace
}  // namespace executors::on_slurm::testing
