// Goal: changing partitions by gRPC needs the token, and a refused request gets a plain reason.
// Method: the real controller behind a real server, with a Slurm in memory.
#include <gmock/gmock.h>

#include "controller/common/clock.h"
#include "controller/service/views.h"
#include "tests/controller/rpc/harness.h"
#include "tests/controller/service/bench.h"

namespace {

using namespace rpc::testing;  // NOLINT
using grpc::StatusCode;
using muster::v1::AdminService;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Admin : public ::testing::Test {
 protected:
  explicit Admin(bool slurm = true) {
    if (!slurm) return;
    bench_.machine->queue = true;
    executors::ClusterFacts facts;
    for (const char* name : {"low", "main"}) {
      facts.partitions.emplace_back().name = name;
      facts.partitions.back().state = "UP";
    }
    facts.nodes.emplace_back().name = "n1";
    bench_.machine->cluster = facts;
  }
  static muster::v1::SetPartitionRequest request(const std::string& name, bool create, std::uint32_t max_nodes = 2) {
    muster::v1::SetPartitionRequest request;
    request.set_create(create);
    request.set_user("anna");
    request.mutable_policy()->set_name(name);
    request.mutable_policy()->set_max_nodes(max_nodes);
    request.add_keys("max_nodes");
    return request;
  }
  template <typename Request, typename Response>
  grpc::Status ask(grpc::Status (AdminService::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                   const Request& request, Response* response, const std::string& token = "people") {
    Call call(token);
    return (admin_.get()->*method)(&call, request, response);
  }
  grpc::Status set(const muster::v1::SetPartitionRequest& request) {
    muster::v1::PartitionView view;
    return ask(&AdminService::Stub::SetPartition, request, &view);
  }
  grpc::Status remove(const std::string& name) {
    muster::v1::RemovePartitionRequest request;
    request.set_name(name);
    request.set_user("ben");
    muster::v1::RemovePartitionResponse response;
    return ask(&AdminService::Stub::RemovePartition, request, &response);
  }
  /// The status of one call of each kind.
  std::vector<StatusCode> all(const std::string& token) {
    muster::v1::ListPartitionsResponse partitions;
    muster::v1::PartitionView view;
    muster::v1::RemovePartitionRequest removal;
    removal.set_name("low");
    muster::v1::RemovePartitionResponse removed;
    muster::v1::ListNodesResponse nodes;
    muster::v1::ListAuditResponse audit;
    return {
        ask(&AdminService::Stub::ListPartitions, muster::v1::ListPartitionsRequest{}, &partitions, token).error_code(),
        ask(&AdminService::Stub::SetPartition, request("low", true), &view, token).error_code(),
        ask(&AdminService::Stub::RemovePartition, removal, &removed, token).error_code(),
        ask(&AdminService::Stub::ListNodes, muster::v1::ListNodesRequest{}, &nodes, token).error_code(),
        ask(&AdminService::Stub::ListAudit, muster::v1::ListAuditRequest{}, &audit, token).error_code()};
  }
  std::vector<std::string> audited() {
    muster::v1::ListAuditResponse audit;
    EXPECT_TRUE(ask(&AdminService::Stub::ListAudit, muster::v1::ListAuditRequest{}, &audit).ok());
    std::vector<std::string> lines;
    for (const auto& line : audit.entries())
      lines.push_back(line.user() + " " + line.action() + " " + line.partition());
    return lines;
  }

  service::testing::Bench bench_;
  std::unique_ptr<rpc::Server> server_ = rpc::serve(bench_.controller(), "127.0.0.1:0");
  std::unique_ptr<AdminService::Stub> admin_ = AdminService::NewStub(connect(server_->port()));
};

class AdminWithoutSlurm : public Admin {
 protected:
  AdminWithoutSlurm() : Admin(false) {}
};

TEST_F(Admin, NobodyRulesOrLooksWithoutThePeoplesToken) {
  const std::vector<StatusCode> refused(5, StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(all(""), refused);
  EXPECT_EQ(all("not it"), refused);
  EXPECT_EQ(all(bench_.token({1, 1})), refused) << "a rank's own is none either";
  EXPECT_THAT(audited(), ElementsAre());
  EXPECT_EQ(all("people"), std::vector<StatusCode>(5, StatusCode::OK));
  EXPECT_EQ(audited().size(), 2U);
}

TEST_F(AdminWithoutSlurm, PartitionsAreRefusedWithTheRemedyAndTheOneNodeIsThisMachine) {
  EXPECT_EQ(all("people"), (std::vector<StatusCode>{StatusCode::FAILED_PRECONDITION, StatusCode::FAILED_PRECONDITION,
                                                    StatusCode::FAILED_PRECONDITION, StatusCode::OK, StatusCode::OK}));
  EXPECT_THAT(set(request("low", true)).error_message(),
              HasSubstr("this controller has no Slurm: start musterd where sbatch is to be found"));
}

TEST_F(Admin, AWrongValueIsNamedWithItsKeyAndWhatIsWanted) {
  const auto says = [&](const muster::v1::SetPartitionRequest& wrong) {
    const auto status = set(wrong);
    EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT) << status.error_message();
    return status.error_message();
  };
  EXPECT_THAT(says(request("low", true, 0)), AllOf(HasSubstr("max_nodes \"0\""), HasSubstr("want ")));
  EXPECT_THAT(says(request("lwo", true)), AllOf(HasSubstr("Slurm knows no"), HasSubstr("lwo"), HasSubstr("low")));
  EXPECT_THAT(says(request("a b", true)), HasSubstr("want 1 to 64 letters, digits"));
  auto misspelt = request("low", true);
  misspelt.add_keys("max_node");
  EXPECT_THAT(says(misspelt), HasSubstr("unknown key max_node, did you mean max_nodes"));
  auto budget = request("low", true);
  budget.mutable_policy()->mutable_requeue()->set_max_failed(4'000'000'000);
  budget.add_keys("requeue.max_failed");
  EXPECT_THAT(says(budget), AllOf(HasSubstr("requeue.max_failed \"4000000000\""), HasSubstr("want ")));
  EXPECT_THAT(audited(), ElementsAre()) << "nothing was changed";
}

TEST_F(Admin, WhatDoesNotFitWhatThereIsIsRefusedWithTheCommandThatDoes) {
  EXPECT_EQ(set(request("low", false)).error_code(), StatusCode::NOT_FOUND);
  EXPECT_THAT(set(request("low", false)).error_message(), HasSubstr("muster admin partition add low"));
  EXPECT_EQ(remove("low").error_code(), StatusCode::NOT_FOUND);
  EXPECT_TRUE(set(request("low", true)).ok());
  EXPECT_EQ(set(request("low", true)).error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(set(request("low", true)).error_message(), HasSubstr("muster admin partition set low"));
}

TEST_F(Admin, WhatWasChangedIsShownAndAuditedWithWhoDidIt) {
  ASSERT_TRUE(set(request("low", true)).ok());
  const auto added = common::time_text(bench_.clock.wall());
  bench_.clock.advance(std::chrono::minutes(1));
  ASSERT_TRUE(set(request("low", false, 7)).ok());
  muster::v1::ListAuditResponse audit;
  ASSERT_TRUE(ask(&AdminService::Stub::ListAudit, muster::v1::ListAuditRequest{}, &audit).ok());
  ASSERT_EQ(audit.entries_size(), 2);
  EXPECT_EQ(audit.entries(0).at(), common::time_text(bench_.clock.wall()));
  EXPECT_EQ(audit.entries(1).at(), added);
  muster::v1::ListPartitionsResponse partitions;
  ASSERT_TRUE(ask(&AdminService::Stub::ListPartitions, muster::v1::ListPartitionsRequest{}, &partitions).ok());
  ASSERT_EQ(partitions.partitions_size(), 2);
  EXPECT_EQ(partitions.partitions(0).name(), "low");
  EXPECT_EQ(partitions.partitions(0).policy().max_nodes(), 7U);
  EXPECT_TRUE(partitions.partitions(0).in_slurm());
  EXPECT_FALSE(partitions.partitions(1).has_policy());
  muster::v1::ListNodesResponse nodes;
  ASSERT_TRUE(ask(&AdminService::Stub::ListNodes, muster::v1::ListNodesRequest{}, &nodes).ok());
  ASSERT_EQ(nodes.nodes_size(), 1);
  EXPECT_EQ(nodes.nodes(0).name(), "n1");
  ASSERT_TRUE(remove("low").ok());
  EXPECT_THAT(audited(), ElementsAre("ben remove low", "anna set low", "anna add low")) << "newest first";
}

TEST_F(Admin, AStoreThatTakesNoWritesChangesNothingAndSaysSo) {
  bench_.memory().fail_writes(store::Error(store::Error::Kind::kFull, "no space left"));
  const auto status = set(request("low", true));
  EXPECT_EQ(status.error_code(), StatusCode::ABORTED);
  EXPECT_EQ(status.error_message(), "nothing was changed: no space left");
}

}  // namespace
