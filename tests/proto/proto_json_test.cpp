#include "json/proto_json.h"

#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "muster/v1/job.pb.h"
#include "recipe_values.h"

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
  test::put(spec, "train.learning_rate", 0.1);
  test::put(spec, "train.seed", 9007199254740992);
  test::put(spec, "train.clip_norm", 1.0);
  test::put(spec, "data.source", "fixture");
  test::put(spec, "fsdp.prefetch", false);
  spec.mutable_recipe()->set_kind("causal_lm");
  spec.mutable_recipe()->set_family("llama");
  (*spec.mutable_env())["NAME"] = "line\nbreak";
  JobSpec again;
  from_json(to_json(spec), again);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(again, spec)) << to_json(again).dump(1);
}

// Specs that earlier versions stored, with a message for each table, have the same JSON.
TEST(ProtoJson, ARecipeStandsInTheTablesOfTheJobFile) {
  JobSpec spec;
  from_json(nlohmann::ordered_json::parse(R"({"recipe": {"kind": "causal_lm",
    "model": {"family": "llama", "vocab_size": null, "hidden_size": 64, "rope_theta": 10000.0},
    "data": {"source": "fixture", "path": "", "max_bytes": 1048576}, "fsdp": {"prefetch": true}}})"),
            spec);
  EXPECT_EQ(spec.recipe().kind(), "causal_lm");
  EXPECT_EQ(spec.recipe().family(), "llama");
  EXPECT_EQ(test::whole(spec, "model.hidden_size"), 64);
  EXPECT_EQ(test::real(spec, "model.rope_theta"), 10000);
  EXPECT_EQ(test::text(spec, "data.source"), "fixture");
  EXPECT_EQ(test::whole(spec, "data.max_bytes"), 1 << 20);
  EXPECT_TRUE(test::flag(spec, "fsdp.prefetch"));
  EXPECT_FALSE(test::has(spec, "data.path"));
  EXPECT_FALSE(test::has(spec, "model.vocab_size"));
  EXPECT_EQ(to_json(spec)["recipe"].dump(),
            R"({"kind":"causal_lm","model":{"family":"llama","hidden_size":64,"rope_theta":10000.0},)"
            R"("data":{"max_bytes":1048576,"source":"fixture"},"fsdp":{"prefetch":true}})");
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
