#include "json/proto_json.h"

#include <gtest/gtest.h>

#include "muster/v1/job.pb.h"

namespace proto {
namespace {

using muster::v1::Job;
using muster::v1::JobSpec;
using nlohmann::ordered_json;

std::string refusal(const char* json) {
  JobSpec spec;
  try {
    from_json(ordered_json::parse(json), spec);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ProtoJson, SixtyFourBitIntegersAreNumbersAndPlainFieldsAreAlwaysThere) {
  Job job;
  job.set_id(9007199254740993);
  const auto json = to_json(job);
  EXPECT_EQ(json["id"].dump(), "9007199254740993");
  EXPECT_EQ(json["name"], "");
  EXPECT_EQ(json["attempts"], ordered_json::array());
}

TEST(ProtoJson, AbsentOptionalValuesAreNullAndAZeroIsAZero) {
  Job job;
  EXPECT_TRUE(to_json(job)["loss"].is_null());
  EXPECT_TRUE(to_json(job)["spec"].is_null());
  job.set_loss(0);
  EXPECT_EQ(to_json(job)["loss"], 0.0);
}

TEST(ProtoJson, MapsAreSortedObjects) {
  JobSpec spec;
  (*spec.mutable_env())["Z"] = "1";
  (*spec.mutable_env())["A"] = "two";
  EXPECT_EQ(to_json(spec)["env"].dump(), R"({"A":"two","Z":"1"})");
}

TEST(ProtoJson, ASpecComesBackAsItWent) {
  JobSpec spec;
  spec.set_name("round trip");
  spec.mutable_resources()->set_nodes(3);
  spec.mutable_recipe()->mutable_train()->set_learning_rate(0.1);
  spec.mutable_recipe()->mutable_train()->set_seed(18446744073709551615ULL);
  (*spec.mutable_env())["NAME"] = "line\nbreak";
  JobSpec again;
  from_json(to_json(spec), again);
  EXPECT_EQ(again.SerializeAsString(), spec.SerializeAsString());
}

TEST(ProtoJson, RefusalsNameThePathAndWhatWasWanted) {
  EXPECT_EQ(refusal(R"({"nme": "x"})"), "nme: unknown key");
  EXPECT_EQ(refusal(R"({"resources": {"nodes": -1}})"),
            "resources.nodes: want a whole number from 0 to 4294967295, got -1");
  EXPECT_EQ(refusal(R"({"resources": {"nodes": 4294967296}})"),
            "resources.nodes: want a whole number from 0 to 4294967295, got 4294967296");
  EXPECT_EQ(refusal(R"({"name": 3})"), "name: want a text, got 3");
  EXPECT_EQ(refusal(R"({"command": {"argv": ["a", 1]}})"), "command.argv[1]: want a text, got 1");
  EXPECT_EQ(refusal(R"({"env": []})"), "env: want an object, got []");
  EXPECT_EQ(refusal("[]"), "(top): want an object, got []");
}

TEST(ProtoJson, TextThatIsNotUtf8IsRepairedForReaders) {
  Job job;
  job.set_reason("bad \xff byte");
  EXPECT_EQ(to_json(job)["reason"], "bad \xEF\xBF\xBD byte");
}

}  // namespace
}  // namespace proto
