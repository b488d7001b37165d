// Goal: what a list shows of a stored spec is what the whole spec says, whatever texts the spec has.
#include "controller/jobs/specs.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "proto/json/proto_json.h"

namespace jobs {
namespace {

muster::v1::SweepElement element(const std::string& value) {
  muster::v1::SweepElement sweep;
  sweep.set_index(7);
  sweep.set_parallel(3);
  (*sweep.mutable_settings())["env.A"] = value;
  (*sweep.mutable_settings())["train.seed"] = "1";
  return sweep;
}

TEST(ObjectIn, IsTheMemberAndNotATextThatLooksLikeIt) {
  for (const std::string text : {"", "plain", R"("sweep":{"index":9})", R"(\"sweep\":{)", "}{\\",
                                 "{\"train\":{\"steps\":1}}", "\n\t\x01", "\xc3\xa9"}) {
    SCOPED_TRACE(text);
    muster::v1::JobSpec spec;
    spec.set_name(text);
    for (const auto* word : {"sweep", "train"}) {
      (*spec.mutable_env())[word] = text;
      (*spec.mutable_report()->mutable_log())[word] = text;
    }
    *spec.mutable_sweep() = element(text);
    muster::v1::SweepElement found;
    const auto stored = spec_to_text(spec);
    proto::from_json(nlohmann::ordered_json::parse(object_in(stored, "sweep")), found);
    EXPECT_EQ(proto::to_json(found), proto::to_json(spec.sweep()));
    EXPECT_EQ(object_in(stored, "train"), "");
    spec.clear_sweep();
    EXPECT_EQ(object_in(spec_to_text(spec), "sweep"), "");
  }
}

TEST(ObjectIn, OfARecipeIsItsTable) {
  muster::v1::JobSpec spec;
  auto& values = *spec.mutable_recipe()->mutable_values();
  values["train.steps"].set_whole(300);
  values["train.text"].set_text("}\"{");
  values["data.path"].set_text("/data");
  const auto train = nlohmann::json::parse(object_in(spec_to_text(spec), "train"));
  EXPECT_EQ(train, (nlohmann::json{{"steps", 300}, {"text", "}\"{"}}));
}

TEST(ObjectIn, OfDamagedTextIsNone) {
  for (const auto* text : {"", "{", R"({"sweep":{)", R"({"sweep":{"a":"}})", R"({"sweep":null})"}) {
    EXPECT_EQ(object_in(text, "sweep"), "") << text;
  }
}

}  // namespace
}  // namespace jobs
