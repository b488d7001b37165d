// Goal: a job file written from a spec gives the same spec, whatever the values of its keys.

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "spec/jobfile/job_file.h"
#include "spec/jobfile/job_keys.h"
#include "tests/recipe_values.h"

namespace jobfile {
namespace {

using google::protobuf::util::MessageDifferencer;
using muster::v1::JobSpec;
using ::testing::IsEmpty;

constexpr const char* kNasty = "a \"b\" \\ 'c' \t#= é [x] ${HOME}";

JobSpec base_of(const Key& field) {
  JobSpec spec;
  spec.set_name("job");
  spec.set_working_folder("/work");
  if (is_recipe_key(field)) {
    spec.mutable_recipe();
  } else {
    spec.mutable_command()->add_argv("true");
  }
  fill_defaults(spec);
  return spec;
}

/// An allowed value of the key that is not its default.
Value other_value(const JobSpec& spec, const Key& field) {
  std::vector<Value> candidates;
  switch (field.kind) {
    case Kind::kFlag:
      candidates = {true, false};
      break;
    case Kind::kReal:
      for (const double part : {0.123456789012345, 1e-7, 0.5}) {
        candidates.emplace_back(field.low + part * (field.high - field.low));
      }
      break;
    case Kind::kWhole:
    case Kind::kDuration:
    case Kind::kSize:
      for (const std::int64_t more : {1, 61'001, 2})
        candidates.emplace_back(static_cast<std::int64_t>(field.low) + more);
      break;
    case Kind::kChoice:
      for (std::size_t at = 0; at < field.choices.size();) {
        const auto end = std::min(field.choices.find(' ', at), field.choices.size());
        candidates.emplace_back(std::string(field.choices.substr(at, end - at)));
        at = end + 1;
      }
      break;
    case Kind::kPath:
      candidates = {std::string("/") + kNasty};
      break;
    case Kind::kName:
      candidates = {std::string("lr=1e-3,seed=3+x.y_z-1")};
      break;
    default:
      candidates = {std::string(kNasty)};
  }
  const auto now = get(spec, field);
  for (const auto& candidate : candidates) {
    if (allowed(field, candidate) && candidate != now) return candidate;
  }
  return candidates.front();
}

void set_other(JobSpec& spec, const Key& field) {
  switch (field.kind) {
    case Kind::kWords:
    case Kind::kLines:
      clear(spec, field);
      for (const auto* text : {"failed:13", "ended:2"}) add(spec, field, field.name == "after" ? text : kNasty);
      return;
    case Kind::kVariables:
      texts_by_name(spec, field)["A"] = std::string(kNasty) + "\nsecond line\x01";
      texts_by_name(spec, field)["B"] = "";
      return;
    case Kind::kPatterns:
      texts_by_name(spec, field)["validation/loss"] = R"(loss "is" ([\d.]+))";
      return;
    case Kind::kOptions:
      texts_by_name(spec, field)["hint"] = "nomultithread";
      texts_by_name(spec, field)["contiguous"] = "";
      return;
    default:
      set(spec, field, other_value(spec, field));
  }
}

/// Reads the spec of a job file. Problems between keys do not matter here.
JobSpec read_back(const std::string& text) {
  auto spec = compose(JobSource::of_text(text, "job.toml", "/elsewhere"), {}, FileChecks::kSkip).spec;
  fill_defaults(spec);
  return spec;
}

TEST(JobFileText, EveryKeyComesBack) {
  for (const auto& field : job_keys()) {
    if (field.name == "extends" || field.name == "sweep") continue;  // only the parser reads extends and [sweep]
    auto spec = base_of(field);
    set_other(spec, field);
    fill_defaults(spec);
    const auto text = job_file_text(spec);
    // A key with one choice always has its default, which is left out.
    const bool can_differ = field.choices.empty() || field.choices.find(' ') != std::string_view::npos;
    EXPECT_NE(can_differ ? text.find(field.name.substr(field.name.rfind('.') + 1)) : 0, std::string::npos)
        << field.name << "\n"
        << text;
    const auto back = read_back(text);
    EXPECT_TRUE(MessageDifferencer::Equals(back, spec)) << field.name << "\n" << text << back.DebugString();
  }
}

TEST(JobFileText, AllKeysTogetherComeBack) {
  for (const bool recipe : {false, true}) {
    auto spec = base_of(*find_key(recipe ? "train.steps" : "command"));
    for (const auto& field : job_keys()) {
      if (field.name == "extends" || field.name == "sweep" || is_recipe_key(field) != recipe || field.name == "command")
        continue;
      set_other(spec, field);
    }
    fill_defaults(spec);
    const auto text = job_file_text(spec);
    EXPECT_TRUE(MessageDifferencer::Equals(read_back(text), spec)) << text;
  }
}

TEST(JobFileText, LeavesOutWhatIsTheDefaultAndReadsWell) {
  const auto file = compose(
      JobSource::of_text(
          "name = \"tune\"\n[resources]\ntime_limit = \"1h30m\"\n[data]\nmax_bytes = \"32MiB\"\n[train]\nsteps = 1000\n"
          "learning_rate = 1e-4\n",
          "job.toml", "/work"),
      {}, FileChecks::kSkip);
  ASSERT_THAT(file.problems, IsEmpty());
  EXPECT_EQ(job_file_text(file.spec),
            "name = \"tune\"\nworking_folder = \"/work\"\n\n[resources]\ntime_limit = \"1h30m\"\n\n[data]\nmax_bytes = "
            "\"32MiB\"\n\n[train]\nlearning_rate = 1e-04\n");
}

TEST(JobFileText, ARecipeOfDefaultsAloneIsStillOne) {
  JobSpec spec;
  spec.set_name("a");
  spec.mutable_recipe();
  EXPECT_TRUE(read_back(job_file_text(spec)).has_recipe());
}

// Each of the two values follows from the other.
TEST(JobFileText, OfTwoValuesThatFollowFromEachOtherOneIsKept) {
  JobSpec spec;
  spec.set_name("a");
  test::put(spec, "train.batch_size", 4);
  test::put(spec, "train.micro_batch_size", 4);
  fill_defaults(spec);
  const auto back = read_back(job_file_text(spec));
  EXPECT_EQ(test::whole(back, "train.batch_size"), 4);
  EXPECT_EQ(test::whole(back, "train.micro_batch_size"), 4);
}

// A partition would fill in a budget that the job file leaves out.
TEST(JobFileText, BudgetsAreSaidWhereAPartitionWouldFillThemIn) {
  JobSpec spec;
  spec.set_name("a");
  spec.mutable_command()->add_argv("true");
  set_slurm_text(spec, "partition", "low");
  EXPECT_NE(job_file_text(spec).find("max_failed = 3\n"), std::string::npos);
}

}  // namespace
}  // namespace jobfile
