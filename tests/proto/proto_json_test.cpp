#include "proto/json/proto_json.h"

#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "muster/v1/job.pb.h"
#include "tests/recipe_values.h"

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

/// Fills fields by chance, also with texts that JSON must escape.
void fill_by_chance(google::protobuf::Message& message, std::mt19937_64& random, int depth) {
  using google::protobuf::FieldDescriptor;
  static const std::vector<std::string> kTexts{"", "plain", "a \"b\" \\", "\n\t\x01\x7f", "\xc3\xa9", "{}[],:", "0"};
  const auto text = [&] { return kTexts[random() % kTexts.size()]; };
  const auto* reflection = message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const auto* field = message.GetDescriptor()->field(i);
    if (random() % 3 == 0) continue;
    const int times = field->is_repeated() ? static_cast<int>(random() % 3) : 1;
    for (int k = 0; k < times; ++k) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        if (depth == 0) continue;
        auto* part = field->is_repeated() ? reflection->AddMessage(&message, field)
                                          : reflection->MutableMessage(&message, field);
        fill_by_chance(*part, random, depth - 1);
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        field->is_repeated() ? reflection->AddString(&message, field, text())
                             : reflection->SetString(&message, field, text());
      } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
        const auto value = static_cast<std::int64_t>(random());
        field->is_repeated() ? reflection->AddInt64(&message, field, value)
                             : reflection->SetInt64(&message, field, value);
      } else if (!field->is_repeated() && field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
        reflection->SetDouble(&message, field, random() % 4 == 0 ? 1.0 : 1.0 / static_cast<double>(random() % 9));
      } else if (!field->is_repeated() && field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
        reflection->SetBool(&message, field, random() % 2 == 0);
      } else if (!field->is_repeated() && field->cpp_type() == FieldDescriptor::CPPTYPE_UINT32) {
        reflection->SetUInt32(&message, field, static_cast<std::uint32_t>(random()));
      } else if (!field->is_repeated() && field->cpp_type() == FieldDescriptor::CPPTYPE_INT32) {
        reflection->SetInt32(&message, field, static_cast<std::int32_t>(random()));
      }
    }
  }
}

TEST(ProtoJson, ACompactTextComesBackAsItWent) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    JobSpec spec, again;
    fill_by_chance(spec, random, 3);
    if (spec.has_recipe()) spec.mutable_recipe()->clear_values();
    if (spec.has_slurm()) spec.mutable_slurm()->clear_values();
    const auto text = to_compact_text(spec);
    from_json(ordered_json::parse(text), again);
    ASSERT_EQ(to_json(again), to_json(spec)) << seed << "\n" << text;
    EXPECT_LT(text.size(), to_json(spec).dump().size());
  }
}

// Fields that are absent and fields that are zero are two things; a part without a field of its own is there.
TEST(ProtoJson, ACompactTextLeavesOutWhatHasItsDefault) {
  JobSpec spec;
  EXPECT_EQ(to_compact_text(spec), "{}");
  spec.mutable_checkpoint()->set_every_steps(0);
  spec.mutable_command();
  EXPECT_EQ(to_compact_text(spec), R"({"command":{},"checkpoint":{"every_steps":0}})");
  spec.set_name("bad \xff byte");
  EXPECT_EQ(ordered_json::parse(to_compact_text(spec))["name"], "bad \xEF\xBF\xBD byte");
}

}  // namespace
}  // namespace proto
