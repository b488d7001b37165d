// Goal: docs/openapi.json says what is served, and cannot go stale unnoticed.
// Method: the file is compared with the table of routes, with the messages' descriptors (their comments are the file's
// descriptions) and with an answer of each route.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "controller/http/api.h"
#include "spec/jobfile/json_request.h"
#include "tests/controller/http/fixture.h"
#include "tests/controller/http/json_schema.h"
#include "tests/places.h"

namespace {

namespace pb = google::protobuf;
using nlohmann::ordered_json;

const std::string kFile = ::test::source_folder() + "/docs/openapi.json";

std::string text_of(const char* file) {
  std::ifstream in(file, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

/// The messages of muster.v1 with their comments.
const pb::DescriptorPool& messages() {
  static const auto* pool = [] {
    pb::FileDescriptorSet files;
    std::ifstream in(::test::build_folder() + "/http_test_descriptors.pb", std::ios::binary);
    files.ParseFromIstream(&in);
    auto* all = new pb::DescriptorPool;
    for (const auto& file : files.file()) all->BuildFile(file);
    return all;
  }();
  return *pool;
}

template <typename Descriptor>
void describe(const Descriptor* what, ordered_json& schema) {
  pb::SourceLocation place;
  if (!what->GetSourceLocation(&place) || place.leading_comments.empty()) return;
  std::istringstream lines(place.leading_comments);
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    line.erase(0, line.find_first_not_of(' '));
    text += (text.empty() ? "" : " ") + line;
  }
  schema["description"] = text;
}

ordered_json reference(const pb::Descriptor* message) {
  return {{"$ref", "#/components/schemas/" + message->name()}};
}

/// The schema of a single value as proto::to_json() writes it.
ordered_json schema_of_value(const pb::FieldDescriptor* field) {
  switch (field->cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_INT32:
    case pb::FieldDescriptor::CPPTYPE_UINT32:
      return {{"type", "integer"}};
    case pb::FieldDescriptor::CPPTYPE_INT64:
    case pb::FieldDescriptor::CPPTYPE_UINT64:
      return {{"type", "integer"}, {"format", "int64"}};
    case pb::FieldDescriptor::CPPTYPE_DOUBLE:
    case pb::FieldDescriptor::CPPTYPE_FLOAT:
      return {{"type", {"number", "null"}}};  // NaN is null
    case pb::FieldDescriptor::CPPTYPE_BOOL:
      return {{"type", "boolean"}};
    case pb::FieldDescriptor::CPPTYPE_MESSAGE:
      return reference(field->message_type());
    default:
      return {{"type", "string"}};
  }
}

ordered_json schema_of_field(const pb::FieldDescriptor* field) {
  ordered_json schema;
  if (field->is_map()) {
    schema = {{"type", "object"}, {"additionalProperties", schema_of_value(field->message_type()->map_value())}};
  } else if (field->is_repeated()) {
    schema = {{"type", "array"}, {"items", schema_of_value(field)}};
  } else if (field->message_type() != nullptr) {
    schema = {{"oneOf", {schema_of_value(field), {{"type", "null"}}}}};
  } else {
    schema = schema_of_value(field);
    if (field->has_presence())
      schema["type"] = {field->cpp_type() == pb::FieldDescriptor::CPPTYPE_STRING ? "string"
                        : schema["type"].is_array()                              ? "number"
                                                                                 : schema["type"].get<std::string>(),
                        "null"};
  }
  describe(field, schema);
  return schema;
}

ordered_json schema_of(const pb::Descriptor* message) {
  ordered_json schema = {{"type", "object"}};
  describe(message, schema);
  if (message->name() == "Recipe") return schema;  // its JSON groups the values into tables
  schema["required"] = ordered_json::array();
  schema["properties"] = ordered_json::object();
  for (int i = 0; i < message->field_count(); ++i) {
    schema["required"].push_back(message->field(i)->name());
    schema["properties"][message->field(i)->name()] = schema_of_field(message->field(i));
  }
  return schema;
}

void references_in(const ordered_json& json, std::set<std::string>& names) {
  constexpr std::string_view kSchemas = "#/components/schemas/";
  if (json.is_object() && json.contains("$ref") && json["$ref"].is_string()) {
    const auto target = json["$ref"].get<std::string>();
    if (target.starts_with(kSchemas)) names.insert(target.substr(kSchemas.size()));
  }
  if (!json.is_structured()) return;
  for (const auto& [name, value] : json.items()) references_in(value, names);
}

/// The file as it should be: the schemas of all messages that it refers to are made from their descriptors.
ordered_json with_messages(const ordered_json& file) {
  auto out = file;
  const auto message = [](const std::string& name) { return messages().FindMessageTypeByName("muster.v1." + name); };
  auto& schemas = out["components"]["schemas"];
  auto own = ordered_json::object();
  for (const auto& [name, schema] : schemas.items()) {
    if (message(name) == nullptr) own[name] = schema;
  }
  schemas = own;
  std::set<std::string> wanted, known;
  references_in(out, wanted);
  while (wanted != known) {
    known = wanted;
    for (const auto& name : known) {
      if (message(name) == nullptr || schemas.contains(name)) continue;
      schemas[name] = schema_of(message(name));
      references_in(schemas[name], wanted);
    }
  }
  return out;
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

/// "get /api/v1/jobs": each operation of the file.
std::set<std::string> operations_of(const ordered_json& file) {
  std::set<std::string> all;
  for (const auto& [path, methods] : file["paths"].items()) {
    for (const auto& [method, operation] : methods.items()) all.insert(method + " " + path);
  }
  return all;
}

}  // namespace

class OpenApi : public HttpTest {
 protected:
  const ordered_json file_ = ordered_json::parse(text_of(kFile.c_str()));

  /// A request for each route, whose answer is compared with the file.
  struct Example {
    std::string target, body = {};
  };
  static std::map<std::string, std::vector<Example>> examples() {
    const std::string job = R"("folder": "/", "job": {"name": "n", "command": ["a"]})";
    return {
        {"post /api/v1/login", {{"/api/v1/login", R"({"token": "the-people-token"})"}}},
        {"post /api/v1/logout", {{"/api/v1/logout"}}},
        {"get /api/v1/jobs", {{"/api/v1/jobs?id=1,2&state=running"}}},
        {"post /api/v1/jobs", {{"/api/v1/jobs", "{" + job + "}"}}},
        {"get /api/v1/jobs/{id}", {{"/api/v1/jobs/1"}}},
        {"get /api/v1/jobs/{id}/metrics", {{"/api/v1/jobs/1/metrics"}, {"/api/v1/jobs/1/metrics?points=10"}}},
        {"get /api/v1/jobs/{id}/events", {{"/api/v1/jobs/1/events"}}},
        {"get /api/v1/jobs/{id}/logs", {{"/api/v1/jobs/1/logs"}, {"/api/v1/jobs/1/logs?rank=7"}}},
        {"get /api/v1/jobs/{id}/ranks", {{"/api/v1/jobs/1/ranks"}}},
        {"get /api/v1/jobs/{id}/stacks", {{"/api/v1/jobs/1/stacks?from=1"}, {"/api/v1/jobs/2/stacks"}}},
        {"post /api/v1/jobs/{id}/stacks", {{"/api/v1/jobs/1/stacks"}}},
        {"get /api/v1/jobs/{id}/why", {{"/api/v1/jobs/1/why"}}},
        {"post /api/v1/jobs/{id}/hold", {{"/api/v1/jobs/1/hold"}}},
        {"post /api/v1/jobs/{id}/release", {{"/api/v1/jobs/1/release"}}},
        {"post /api/v1/jobs/{id}/limit", {{"/api/v1/jobs/1/limit", R"({"time_limit_ms": 5000})"}}},
        {"post /api/v1/jobs/{id}/requeue", {{"/api/v1/jobs/1/requeue"}}},
        {"post /api/v1/jobs/{id}/cancel", {{"/api/v1/jobs/1/cancel"}}},
        {"post /api/v1/jobs/{id}/remove", {{"/api/v1/jobs/2/remove"}}},
        {"post /api/v1/sweeps", {{"/api/v1/sweeps", "{" + job + R"(, "settings": [{"env.A": 1}]})"}}},
        {"post /api/v1/sweeps/{sweep}/hold", {{"/api/v1/sweeps/s9/hold"}}},
        {"post /api/v1/sweeps/{sweep}/release", {{"/api/v1/sweeps/s9/release"}}},
        {"post /api/v1/sweeps/{sweep}/requeue", {{"/api/v1/sweeps/s9/requeue"}}},
        {"post /api/v1/sweeps/{sweep}/cancel", {{"/api/v1/sweeps/s9/cancel"}}},
        {"get /api/v1/machine", {{"/api/v1/machine"}}},
        {"get /api/v1/status", {{"/api/v1/status"}}},
        {"get /api/v1/stream", {}},  // stream_test.cpp reads it
        {"get /api/v1/openapi.json", {{"/api/v1/openapi.json"}}},
        {"get /healthz", {{"/healthz"}}},
        {"get /metrics", {{"/metrics"}}},
    };
  }

  /// The file's response, with its $ref followed.
  ordered_json response_of(const std::string& operation, int status) const {
    const auto method = operation.substr(0, operation.find(' ')), path = operation.substr(method.size() + 1);
    const auto responses = file_["paths"][path][method]["responses"];
    const auto found = responses.find(std::to_string(status));
    if (found == responses.end()) return nullptr;
    if (!found->contains("$ref")) return *found;
    return file_.at(ordered_json::json_pointer((*found)["$ref"].get<std::string>().substr(1)));
  }

  std::string misfit_of(const std::string& operation, const Client::Answer& answer) const {
    const auto response = response_of(operation, answer.status);
    if (response.is_null()) return "the file has no " + std::to_string(answer.status) + ": " + answer.body;
    const auto type = answer.headers.at("content-type");
    const auto& content = response["content"];
    const auto declared = content.find(type.substr(0, type.find(';')));
    if (declared == content.end()) return "the file has no " + type;
    const auto json = ordered_json::parse(answer.body, nullptr, false);
    return test::misfit(file_, (*declared)["schema"], json.is_discarded() ? ordered_json(answer.body) : json);
  }

  void fill() {
    auto full = job(1, "running");
    full.set_ranks_total(2);
    full.add_ranks()->set_state("running");
    full.add_series()->set_name("loss");
    full.mutable_spec()->mutable_command()->add_argv("a");
    full.mutable_sweep()->set_sweep("s9");
    controller_.put(full);
    for (int step = 0; step < 3; ++step) {
      auto one = metric(1, step, 2.5);
      (*one.mutable_series())["loss"] = 2.5;
      controller_.add_metric(1, one);
    }
    controller_.add_event(1, "rank_joined", "rank 0 joined");
    muster::v1::StacksView stacks;
    stacks.set_job_id(1);
    stacks.mutable_shown()->set_number(5);
    stacks.add_groups()->add_ranks(0);
    for (std::uint32_t rank = 0; rank < 2; ++rank) stacks.add_ranks()->set_text("of a rank");
    controller_.put_stacks(stacks);
    controller_.append_log(1, 1, 0, "one\n");
  }
};

TEST_F(OpenApi, GoldenSchemasAreThoseOfTheMessages) {
  ASSERT_NE(messages().FindMessageTypeByName("muster.v1.Job"), nullptr);
  const auto wanted = with_messages(file_).dump(2) + "\n";
  if (std::getenv("MUSTER_BLESS") != nullptr) std::ofstream(kFile) << wanted;
  EXPECT_EQ(text_of(kFile.c_str()), wanted) << "run ./dev bless";
}

TEST_F(OpenApi, EachRouteIsInTheFileAndTheFileHasNoOther) {
  std::set<std::string> served;
  for (const auto& route : http::routes()) {
    const auto method = to_string(route.method);
    served.insert(lower({method.data(), method.size()}) + " " + std::string(route.path));
  }
  EXPECT_EQ(operations_of(file_), served);
  EXPECT_EQ(get("/api/v1/openapi.json").body, text_of(kFile.c_str()))
      << "musterd serves the file that it was built with";
}

TEST_F(OpenApi, EachRouteAnswersWithTheMembersAndTypesOfTheFile) {
  const auto all = examples();
  for (const auto& operation : operations_of(file_)) {
    ASSERT_TRUE(all.contains(operation)) << "add an example of " << operation;
    for (const auto& [target, body] : all.at(operation)) {
      fill();
      controller_.put(job(2, "failed"));
      const auto method = operation.starts_with("get") ? "GET" : "POST";
      const auto answer = ask(method, target, {"X-Muster: 1"}, body);
      EXPECT_LT(answer.status, 300) << operation << answer.body;
      EXPECT_EQ(misfit_of(operation, answer), "") << operation;
    }
  }
}

TEST_F(OpenApi, EachParameterIsInTheFileAndNoOtherIsTaken) {
  fill();
  for (const auto& route : http::routes()) {
    const auto method = to_string(route.method);
    std::string declared;
    const auto& operation = file_["paths"][std::string(route.path)][lower({method.data(), method.size()})];
    for (const auto& parameter : operation.value("parameters", ordered_json::array())) {
      if (parameter.value("in", "") == "query")
        declared += (declared.empty() ? "" : ", ") + parameter["name"].get<std::string>();
    }
    EXPECT_EQ(declared, route.parameters) << route.path;
    auto target = std::string(route.path);
    if (const auto at = target.find("{id}"); at != std::string::npos) target.replace(at, 4, "1");
    if (const auto at = target.find("{sweep}"); at != std::string::npos) target.replace(at, 7, "s9");
    const auto answer = ask({method.data(), method.size()}, target + "?nothing=1", {"X-Muster: 1"}, "{}");
    EXPECT_EQ(answer.status, 400) << target << answer.body;
    EXPECT_THAT(answer.body, testing::HasSubstr("this address has no parameter nothing")) << target;
  }
}

TEST_F(OpenApi, EachMemberOfASubmissionIsInTheFile) {
  for (const bool is_sweep : {false, true}) {
    std::set<std::string> declared;
    const auto& schema = file_["components"]["schemas"][is_sweep ? "SweepSubmission" : "Submission"];
    for (const auto& [name, member] : schema["properties"].items()) declared.insert(name);
    const auto read = jobfile::request_members(is_sweep);
    EXPECT_EQ(declared, std::set<std::string>(read.begin(), read.end()));
  }
}

TEST_F(OpenApi, EachNumberAmongTheParametersIsRead) {
  fill();
  int read = 0;
  for (const auto& [path, methods] : file_["paths"].items()) {
    if (path == "/api/v1/stream" || !methods.contains("get")) continue;
    for (const auto& parameter : methods["get"].value("parameters", ordered_json::array())) {
      if (parameter["in"] != "query" || parameter["schema"]["type"] != "integer") continue;
      auto target = path;
      if (const auto at = target.find("{id}"); at != std::string::npos) target.replace(at, 4, "1");
      const auto name = parameter["name"].get<std::string>();
      const auto wrong = name + "=x";
      std::string said = get(target + "?" + wrong).body;
      // Some count only beside another one.
      if (path.ends_with("/metrics")) {
        for (const char* other : {"after_attempt=1&", "points=5&"}) {
          if (!std::string(other).starts_with(name + "=")) said += get(target + "?" + other + wrong).body;
        }
      }
      EXPECT_THAT(said, testing::HasSubstr(wrong + " is not a number")) << target << wrong;
      ++read;
    }
  }
  EXPECT_GT(read, 15);
}

TEST_F(OpenApi, EachRefusalIsInTheFileToo) {
  for (const auto& [operation, examples] : examples()) {
    const auto method = operation.starts_with("get") ? "GET" : "POST";
    const auto path = operation.substr(operation.find(' ') + 1);
    const auto of_nobody = [&](const std::string& part, const std::string& other) {
      auto target = path;
      if (const auto at = target.find(part); at != std::string::npos) target.replace(at, part.size(), other);
      return target;
    };
    const auto nobody = of_nobody("{id}", "77") == path ? of_nobody("{sweep}", "s77") : of_nobody("{id}", "77");
    if (!response_of(operation, 401).is_null()) {
      const auto answer = Client(server_->port()).ask(method, nobody, {"X-Muster: 1"}, R"({"token": "wrong"})");
      EXPECT_EQ(answer.status, 401) << operation;
      EXPECT_EQ(misfit_of(operation, answer), "") << operation;
    }
    if (operation.starts_with("post")) {
      EXPECT_EQ(misfit_of(operation, ask("POST", nobody, {}, "{}")), "") << operation;
      if (!response_of(operation, 400).is_null()) {
        const auto answer = ask("POST", nobody, {"X-Muster: 1"}, "{");
        EXPECT_EQ(answer.status, 400) << operation;
        EXPECT_EQ(misfit_of(operation, answer), "") << operation;
      }
    }
    if (nobody != path) {
      const auto body = nobody.ends_with("/limit") ? R"({"time_limit_ms": 0})" : "";
      const auto answer = ask(method, nobody, {"X-Muster: 1"}, body);
      EXPECT_EQ(answer.status, 404) << operation;
      EXPECT_EQ(misfit_of(operation, answer), "") << operation;
    }
  }
  const auto bad = ask("POST", "/api/v1/jobs", {"X-Muster: 1"}, R"({"folder": "/", "job": {}})");
  EXPECT_FALSE(bad.json()["findings"].empty());
  EXPECT_EQ(misfit_of("post /api/v1/jobs", bad), "");
  EXPECT_EQ(misfit_of("post /api/v1/jobs/{id}/cancel", ask("POST", "/api/v1/jobs/2/cancel", {"X-Muster: 1"})), "");
}
