#include "controller/executors/slurm/poller.h"

#include <gtest/gtest.h>

namespace executors::on_slurm {
namespace {

using namespace std::chrono_literals;

TEST(JobDoubt, OneAnswerIsEnoughWhereNobodyIsHeardAndTwoApartAreNeededElsewhere) {
  JobDoubt doubt;
  EXPECT_FALSE(doubt.wants_asking(0ms));
  doubt.raise();
  EXPECT_TRUE(doubt.wants_asking(0ms));
  EXPECT_FALSE(doubt.is_believed(false)) << "nobody was asked yet";
  doubt.confirm(1000ms);
  EXPECT_TRUE(doubt.is_believed(false));
  EXPECT_FALSE(doubt.is_believed(true));
  EXPECT_FALSE(doubt.wants_asking(3999ms));
  EXPECT_TRUE(doubt.wants_asking(4000ms));
  doubt.confirm(4000ms);
  EXPECT_TRUE(doubt.is_believed(true));
}

TEST(JobDoubt, ALossThatIsConfirmedAgainAndAgainIsAskedForLessOften) {
  JobDoubt doubt;
  doubt.raise();
  int asked = 0;
  for (auto now = 0ms; now < 600s; now += 1s) {
    if (!doubt.wants_asking(now)) continue;
    doubt.confirm(now);
    ++asked;
  }
  EXPECT_LT(asked, 20);
  EXPECT_GT(asked, 10);
}

TEST(JobDoubt, WhatIsSettledIsForgotten) {
  JobDoubt doubt;
  doubt.raise();
  doubt.confirm(0ms);
  doubt.settle();
  EXPECT_FALSE(doubt.raised());
  doubt.raise();
  EXPECT_FALSE(doubt.is_believed(false));
  EXPECT_TRUE(doubt.wants_asking(1ms));
}

TEST(JobIdentity, ANumberAloneProvesNothing) {
  const ::slurm::Time submitted(1795253486s);
  const JobIdentity ours{{12, {}}, "muster:s:7.1", "/data/jobs/7/attempt-1", submitted};
  ::slurm::ListedJob job;
  job.id = {12, {}};
  EXPECT_FALSE(ours.is(job));
  job.comment = "muster:s:7.1";
  EXPECT_TRUE(ours.is(job));
  job.comment = "an admin's";
  job.submitted = submitted + 1s;
  EXPECT_FALSE(ours.is(job)) << "slurmctld gave the number to another job a second later";
  job.submitted = submitted;
  EXPECT_TRUE(ours.is(job));
  job.submitted.reset();
  job.work_folder = "/data/jobs/7/attempt-1";
  EXPECT_TRUE(ours.is(job));
  job.id = {12, 3};
  EXPECT_FALSE(ours.is(job));
}

TEST(JobIdentity, WhatIsNotKnownIsNotCompared) {
  const JobIdentity ours{{12, {}}, "muster:s:7.1", "", std::nullopt};
  ::slurm::ListedJob job;
  job.id = {12, {}};
  EXPECT_FALSE(ours.is(job)) << "both have neither folder nor moment";
}

}  // namespace
}  // namespace executors::on_slurm
