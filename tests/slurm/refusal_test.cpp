// Goal: what Slurm's refusals mean is decided in one place.
// Method: Slurm's own sentences, as a table.
#include "slurm/answer.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace slurm {
namespace {

using Table = std::vector<std::pair<std::string, Refusal>>;

TEST(Refusal, EachSentenceOfAFailedSubmissionHasItsKind) {
  const Table table = {
      {"Invalid partition name specified", Refusal::kUsers},
      {"Invalid qos specification", Refusal::kUsers},
      {"Invalid account or account/partition combination specified", Refusal::kUsers},
      {"Node count specification invalid", Refusal::kUsers},
      {"User's group not permitted to use this partition", Refusal::kUsers},
      {"Requested node configuration is not available", Refusal::kUsers},
      {"Requested time limit is invalid (missing or exceeds some limit)", Refusal::kUsers},
      {"Access denied to requested reservation", Refusal::kUsers},
      {"unrecognized option '--nonsense'", Refusal::kUsers},
      {"Invalid job array specification", Refusal::kArray},
      {"QOSMaxSubmitJobPerUserLimit; Job violates accounting/QOS policy (job submit limit)", Refusal::kTooMany},
      {"AssocGrpSubmitJobsLimit; Job violates accounting/QOS policy", Refusal::kTooMany},
      {"Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", Refusal::kTooMany},
      {"QOSMaxWallDurationPerJobLimit; Job violates accounting/QOS policy", Refusal::kUsers},
      {"Slurm temporarily unable to accept job, sleeping and retrying", Refusal::kForNow},
      {"Unable to create job record, try again", Refusal::kForNow},
      {"Required partition not available (inactive or drain)", Refusal::kForNow},
      {"Requested partition configuration not available now", Refusal::kForNow},
      {"Requested operation is presently disabled", Refusal::kForNow},
      {"Access/permission denied", Refusal::kUnknown},
      {"Unspecified error", Refusal::kUnknown},
      {"", Refusal::kUnknown},
  };
  for (const auto& [words, kind] : table) EXPECT_EQ(understand_refusal(words), kind) << words;
}

TEST(Refusal, EachSentenceOfARefusedChangeHasItsKind) {
  const Table table = {
      {"Access/permission denied for job 12", Refusal::kForbidden},
      {"slurm_update error: Access/permission denied", Refusal::kForbidden},
      {"Job is no longer pending execution for job 12", Refusal::kUnknown},
      {"Requested time limit is invalid (missing or exceeds some limit)", Refusal::kUnknown},
  };
  for (const auto& [words, kind] : table) EXPECT_EQ(understand_refused_change(words), kind) << words;
}

TEST(Refusal, OnlyWhatTheClusterWillNeverHaveIsFinal) {
  for (const auto kind : {Refusal::kUsers, Refusal::kArray}) EXPECT_TRUE(is_final(kind));
  for (const auto kind : {Refusal::kTooMany, Refusal::kForNow, Refusal::kForbidden, Refusal::kUnknown}) {
    EXPECT_FALSE(is_final(kind));
  }
}

}  // namespace
}  // namespace slurm
