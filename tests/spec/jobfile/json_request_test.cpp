// Goal: a program's JSON becomes the spec that the same job file gives, or findings with place, value and remedy.
#include "spec/jobfile/json_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "proto/json/proto_json.h"
#include "spec/jobfile/job_file.h"
#include "tests/temporary_folder.h"

namespace jobfile {
namespace {

using nlohmann::ordered_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

ordered_json json_of(const char* text) {
  return ordered_json::parse(text);
}

std::string all_lines(const JsonRequest& request) {
  std::string all;
  for (const auto& finding : request.findings) all += finding.line + "\n";
  return all;
}

TEST(JsonRequest, ATextAndAnObjectGiveTheSpecOfTheJobFile) {
  const std::string text =
      "name = \"one\"\ncommand = [\"python3\", \"train.py\"]\nworking_folder = \"below\"\n[resources]\nranks_per_node "
      "= "
      "2\ntime_limit = \"4h\"\n[env]\nLR = \"1e-4\"\n[slurm.options]\nmem-bind = \"local\"\n[requeue]\nmax_failed = "
      "2\n";
  const auto file = compose(JobSource::of_text(text, "job.toml", "/data"), {}, FileChecks::kSkip);
  ASSERT_THAT(file.problems, IsEmpty());
  const auto of_text = read_job({{"job_file", text}, {"folder", "/data"}});
  const auto of_object = read_job(json_of(R"({"folder": "/data", "job": {
    "name": "one", "command": ["python3", "train.py"], "working_folder": "below", "hold": null,
    "resources": {"ranks_per_node": 2, "time_limit": "4h"}, "env": {"LR": "1e-4"},
    "slurm": {"options": {"mem-bind": "local"}}, "requeue": {"max_failed": 2}}})"));
  for (const auto* request : {&of_text, &of_object}) {
    ASSERT_EQ(all_lines(*request), "");
    auto spec = request->specs.at(0);
    EXPECT_EQ(spec.job_file(), "the request");
    spec.clear_job_file();
    EXPECT_EQ(proto::to_json(spec).dump(1), proto::to_json(file.spec).dump(1));
  }
}

TEST(JsonRequest, SetReplacesKeysAsTheCommandLineDoes) {
  const auto request = read_job(json_of(R"({"folder": "/", "job": {"name": "n", "command": ["a"], "env": {"LR": 3}},
    "user": "ben", "request_id": "r7",
    "set": {"env.LR": "1e-4", "ranks_per_node": 2, "hold": true, "command": ["b", "c \"d\""], "name": null}})"));
  ASSERT_EQ(all_lines(request), "");
  const auto& spec = request.specs.at(0);
  EXPECT_EQ(spec.env().at("LR"), "1e-4");
  EXPECT_EQ(spec.resources().ranks_per_node(), 2U);
  EXPECT_TRUE(spec.hold());
  EXPECT_THAT(spec.command().argv(), ElementsAre("b", "c \"d\""));
  EXPECT_EQ(request.user, "ben");
  EXPECT_EQ(request.request_id, "r7");
}

TEST(JsonRequest, ACommandTakesTheSubmittersVariablesThatDecideWhichProgramsAreFound) {
  const auto request = read_job(json_of(R"({"folder": "/", "job": {"name": "n", "command": ["a"]},
    "submitted_env": {"PATH": "/bin", "CONDA_PREFIX": "/c", "SECRET": "x"}})"));
  ASSERT_EQ(all_lines(request), "");
  EXPECT_THAT(request.specs.at(0).submitted_env(),
              UnorderedElementsAre(Pair("PATH", "/bin"), Pair("CONDA_PREFIX", "/c")));
}

TEST(JsonRequest, FindingsHavePlaceKeyValueAndRemedy) {
  const auto text = read_job({{"job_file", "name = \"n\"\ncommand = [\"a\"]\n[resources]\nnodes = \"2\"\n"},
                              {"file_name", "/home/ben/job.toml"},
                              {"folder", "/home/ben"}});
  ASSERT_THAT(text.findings, SizeIs(1));
  const auto& finding = text.findings[0];
  EXPECT_EQ(finding.place, "/home/ben/job.toml:4:9");
  EXPECT_EQ(finding.key, "resources.nodes");
  EXPECT_EQ(finding.value, "2");
  EXPECT_THAT(finding.message, HasSubstr("want a whole number"));
  EXPECT_EQ(finding.remedy, "write it without quotes");
  EXPECT_EQ(finding.line, "/home/ben/job.toml:4:9: resources.nodes \"2\": " + finding.message + "; " + finding.remedy);

  const auto object = read_job(json_of(R"({"folder": "/", "job": {"name": "n", "command": ["a", 7, null],
    "resources": {"nodes": 0, "rank_per_node": 1}, "env": {"A": {"b": 1}}}, "set": {"hold": "often"}})"));
  EXPECT_THAT(all_lines(object), HasSubstr("job: command[2] \"null\": want a value"));
  const auto rest = read_job(json_of(R"({"folder": "/", "job": {"name": "n", "command": ["a", 7],
    "resources": {"nodes": 0, "rank_per_node": 1}, "env": {"A": {"b": 1}}}, "set": {"hold": "often"}})"));
  EXPECT_THAT(all_lines(rest), HasSubstr("job: command \"7\": want a text in quotes, as every argument\n"));
  EXPECT_THAT(all_lines(rest), HasSubstr("job: resources.nodes \"0\": want "));
  EXPECT_THAT(all_lines(rest), HasSubstr("job: resources.rank_per_node: unknown key, did you mean"));
  EXPECT_THAT(all_lines(rest), HasSubstr("job: env.A \"b = 1\": want "));
  EXPECT_THAT(all_lines(rest), HasSubstr("set.hold: want true or false"));
  EXPECT_THAT(all_lines(read_job(json_of(R"({"folder": "/", "job": {"command": ["a"]}})"))),
              HasSubstr("job: name: want "));
}

TEST(JsonRequest, BadMembersAreNamed) {
  for (const auto& [body, said] : std::vector<std::pair<const char*, const char*>>{
           {"[]", "the request: want a JSON object"},
           {"{}", "the request: job_file: want job_file (the text of a job file) or job"},
           {R"({"job": {}, "job_file": "", "folder": "/"})", "the request: job: want job_file or job, not both"},
           {R"({"job_file": 7, "folder": "/"})", "the request: job_file \"7\": want a text"},
           {R"({"job": [], "folder": "/"})", "the request: job \"[...]\": want an object"},
           {R"({"job": {}})", "the request: folder: want an absolute path"},
           {R"({"job": {}, "folder": "here"})", "the request: folder \"here\": want an absolute path"},
           {R"({"job": {}, "folder": "/", "sets": {}})", "the request: sets: unknown member; did you mean set"},
           {R"({"job": {}, "folder": "/", "set": {"env": {"A": "b"}}})", "the request: set.env \"{...}\": want a text"},
           {R"({"job": {}, "folder": "/", "submitted_env": {"A": 1}})",
            "the request: submitted_env.A \"1\": want a text"},
           {R"({"job": {}, "folder": "/", "parallel": 3})", "the request: parallel: unknown member"},
           {R"({"job": {"name": 18446744073709551615}, "folder": "/"})",
            "job: name \"18446744073709551615\": the number"},
           {R"({"job": {"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":1}}}}}}}}}}, "folder": "/"})",
            "more than 8 deep"},
           {R"({"job_file": "name = \n", "folder": "/"})", "job_file:1:8: not TOML: there is no value after ="},
           {R"({"job_file": "name = \"n\"\ncommand=[\"a\"]\n[sweep]\nenv.A = [1, 2]", "folder": "/"})",
            "post it to /api/v1/sweeps"}}) {
    const auto request = read_job(json_of(body));
    EXPECT_THAT(all_lines(request), HasSubstr(said)) << body;
  }
}

TEST(JsonRequest, AFileMayExtendAnotherOneButNoPipe) {
  const test::TemporaryFolder folder;
  std::ofstream(folder.path() / "base.toml") << "command = [\"a\"]\n";
  ASSERT_EQ(mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
  const auto ask = [&](const char* base) {
    return read_job(
        {{"job_file", std::string("name = \"n\"\nextends = \"") + base + "\"\n"}, {"folder", folder.path().native()}});
  };
  EXPECT_THAT(ask("base.toml").specs.at(0).command().argv(), ElementsAre("a"));
  EXPECT_THAT(all_lines(ask("pipe")), HasSubstr("job_file:2:11: extends \"pipe\": this is a pipe or a device"));
  EXPECT_THAT(all_lines(ask("nothing")), HasSubstr("there is no such job file"));
}

TEST(JsonRequest, ASweepIsEveryCombinationOrOneJobForEachRow) {
  const auto axes = read_sweep(json_of(R"({"folder": "/", "parallel": 2, "submitted_env": {"PATH": "/bin"},
    "job": {"name": "n", "command": ["a"]}, "sweep": {"env.LR": ["1e-4", 3], "ranks_per_node": "1..2"}})"));
  ASSERT_EQ(all_lines(axes), "");
  ASSERT_THAT(axes.specs, SizeIs(4));
  EXPECT_EQ(axes.parallel, 2U);
  EXPECT_EQ(axes.specs[3].name(), "n-0003");
  EXPECT_EQ(axes.specs[3].env().at("LR"), "3");
  EXPECT_EQ(axes.specs[3].resources().ranks_per_node(), 2U);
  EXPECT_THAT(axes.submitted_env, ElementsAre(Pair("PATH", "/bin")));
  EXPECT_THAT(axes.specs[3].submitted_env(), IsEmpty()) << "they are sent once";

  const auto rows = read_sweep(json_of(R"({"folder": "/", "job": {"name": "n"},
    "settings": [{"command": ["a", "1"], "env.X": 1}, {"command": ["a", "2"]}]})"));
  ASSERT_EQ(all_lines(rows), "");
  ASSERT_THAT(rows.specs, SizeIs(2));
  EXPECT_THAT(rows.specs[1].command().argv(), ElementsAre("a", "2"));
  EXPECT_THAT(rows.specs[0].sweep().settings(),
              UnorderedElementsAre(Pair("command", "[\"a\", \"1\"]"), Pair("env.X", "1")));
  EXPECT_EQ(rows.specs[1].sweep().index(), 1U);
}

TEST(JsonRequest, ABadSweepIsRefused) {
  for (const auto& [more, said] : std::vector<std::pair<const char*, const char*>>{
           {"{}", "job: the sweep varies no key"},
           {R"({"sweep": {"env.A": [1], "parallel": 3}})", "want parallel beside sweep"},
           {R"({"sweep": {"env.A": [1, 1]}})", "sweep.env.A: 1 is given twice"},
           {R"({"sweep": {"nod": [1]}})", "sweep.nod: unknown key"},
           {R"({"sweep": {"env.A": "0..9999", "env.B": "0..1"}})", "more than 10000 jobs"},
           {R"({"sweep": {"env.A": [1]}, "set": {"env.A": 2}})", "set.env.A: the sweep varies it"},
           {R"({"settings": []})", "settings \"[...]\": want an array of 1 to 10000 objects"},
           {R"({"settings": [3]})", "settings[0] \"3\": want an object"},
           {R"({"settings": [{"env.A": 1}], "sweep": {"env.B": [1]}})", "want sweep or settings, not both"},
           {R"({"settings": [{"nods": 1}]})", "settings[0].nods: unknown key"},
           {R"({"parallel": 0, "sweep": {"env.A": [1]}})", "parallel \"0\": want a whole number from 1 to 10000"}}) {
    auto body = json_of(R"({"folder": "/", "job": {"name": "n", "command": ["a"]}})");
    body.update(json_of(more));
    EXPECT_THAT(all_lines(read_sweep(body)), HasSubstr(said)) << more;
  }
  const auto file = "name = \"n\"\ncommand = [\"a\"]\n[sweep]\nenv.A = \"0..9999\"\n#" + std::string(40'000, '.');
  EXPECT_THAT(all_lines(read_sweep({{"folder", "/"}, {"job_file", file}})), HasSubstr("too many for a sweep of 10000"));
}

}  // namespace
}  // namespace jobfile
