// Goal: after a restore an admin learns which jobs of Slurm nobody will follow. Method: listings made by hand, and a
// store in memory.
#include "controller/musterd/backup.h"

#include <gmock/gmock.h>

#include "controller/common/tokens.h"
#include "tests/controller/store/memory_store.h"
#include "tests/controller/store/saga.h"

namespace musterd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Strangers : public ::testing::Test {
 protected:
  slurm::ListedJob listed(std::uint64_t id, const std::string& name, const char* state = "RUNNING") {
    slurm::ListedJob job;
    job.id.job = id;
    job.state = slurm::parse_job_state(state);
    job.comment = "muster:" + common::store_name(store.secret()) + ":" + name;
    job.node_list = "n[1-2]";
    return job;
  }
  std::vector<std::string> found(const slurm::ListedJob& job) { return strangers({job}, store); }

  store::MemoryStore store;
};

TEST_F(Strangers, AreThoseOfJobsThatTheBackupDoesNotKnow) {
  test::Saga open(store), over(store);
  open.tell(test::submitted());
  open.run(1);
  EXPECT_THAT(found(listed(70, "1.1")), IsEmpty()) << "musterd goes on with it";
  EXPECT_THAT(found(listed(71, "1.2")), IsEmpty()) << "the next attempt is taken over";
  EXPECT_THAT(found(listed(72, "1.3")),
              ElementsAre("scancel 72  # on n[1-2]: job 1 attempt 3, and the backup has 1 attempt of it"));
  EXPECT_THAT(found(listed(73, "2.1", "PENDING")),
              ElementsAre("scancel 73  # queued: job 2 attempt 1, which the backup does not have"));
  EXPECT_THAT(found(listed(74, "set.7.1")),
              ElementsAre("scancel 74  # on n[1-2]: an array from job 7 attempt 1, which the backup does not have"));
  over.tell(test::submitted());
  over.tell(core::CancelRequested{"ann"});
  EXPECT_THAT(found(listed(75, "2.1")),
              ElementsAre("scancel 75  # on n[1-2]: job 2 attempt 1, and the job has ended in the backup"));
}

TEST_F(Strangers, AreNeitherOverNorOfAnotherStoreNorAnybodyElses) {
  EXPECT_THAT(found(listed(70, "2.1", "COMPLETED")), IsEmpty());
  auto other = listed(71, "2.1");
  other.comment = "muster:00000000:2.1";
  EXPECT_THAT(found(other), IsEmpty());
  other.comment = "my own words";
  EXPECT_THAT(found(other), IsEmpty());
}

}  // namespace
}  // namespace musterd
