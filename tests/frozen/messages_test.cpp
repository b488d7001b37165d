// Goal: every message, field, value and call of the released versions is there today, with its number, type and name.
// Method: the descriptors of the frozen .proto files are compared with those that this build has generated.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>

#include <fstream>

#include "muster/v1/admin_service.pb.h"
#include "muster/v1/job_service.pb.h"
#include "muster/v1/rank_service.pb.h"

namespace test {
namespace {

namespace pb = google::protobuf;

class Messages : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    // Else the generated files are not known yet.
    ASSERT_NE(muster::v1::StatusRequest::descriptor(), nullptr);
    ASSERT_NE(muster::v1::SubmitRequest::descriptor(), nullptr);
    ASSERT_NE(muster::v1::RegisterRequest::descriptor(), nullptr);
    std::ifstream file(GetParam(), std::ios::binary);
    pb::FileDescriptorSet set;
    ASSERT_TRUE(set.ParseFromIstream(&file)) << GetParam();
    for (const auto& one : set.file()) {
      const auto* built = then_.BuildFile(one);
      ASSERT_NE(built, nullptr) << one.name();
      files_.push_back(built);
    }
    ASSERT_GE(files_.size(), 8U);
  }
  void lose(const std::string& what) { lost_.push_back(what); }
  void compare(const pb::EnumDescriptor& then) {
    const auto* now = now_.FindEnumTypeByName(then.full_name());
    if (now == nullptr) return lose(then.full_name());
    for (int i = 0; i < then.value_count(); ++i) {
      const auto& value = *then.value(i);
      const auto* same = now->FindValueByNumber(value.number());
      if (same == nullptr || same->name() != value.name()) lose(value.full_name());
    }
  }
  void compare(const pb::Descriptor& then) {
    const auto* now = now_.FindMessageTypeByName(then.full_name());
    if (now == nullptr) return lose(then.full_name());
    for (int i = 0; i < then.field_count(); ++i) {
      const auto& field = *then.field(i);
      const auto* same = now->FindFieldByNumber(field.number());
      const auto type_name = [](const pb::FieldDescriptor& of) {
        return of.message_type() != nullptr ? of.message_type()->full_name()
               : of.enum_type() != nullptr  ? of.enum_type()->full_name()
                                            : std::string(of.type_name());
      };
      const bool fits = same != nullptr && same->name() == field.name() && same->label() == field.label() &&
                        type_name(*same) == type_name(field) && same->has_presence() == field.has_presence();
      if (!fits) lose(field.full_name() + " = " + std::to_string(field.number()));
    }
    for (int i = 0; i < then.nested_type_count(); ++i) compare(*then.nested_type(i));
    for (int i = 0; i < then.enum_type_count(); ++i) compare(*then.enum_type(i));
  }
  void compare(const pb::ServiceDescriptor& then) {
    const auto* now = now_.FindServiceByName(then.full_name());
    if (now == nullptr) return lose(then.full_name());
    for (int i = 0; i < then.method_count(); ++i) {
      const auto& call = *then.method(i);
      const auto* same = now->FindMethodByName(call.name());
      const bool fits = same != nullptr && same->input_type()->full_name() == call.input_type()->full_name() &&
                        same->output_type()->full_name() == call.output_type()->full_name() &&
                        same->client_streaming() == call.client_streaming() &&
                        same->server_streaming() == call.server_streaming();
      if (!fits) lose(call.full_name());
    }
  }

  pb::DescriptorPool then_;
  const pb::DescriptorPool& now_ = *pb::DescriptorPool::generated_pool();
  std::vector<const pb::FileDescriptor*> files_;
  std::vector<std::string> lost_;
};

TEST_P(Messages, AreThereTodayAsTheyWere) {
  int messages = 0;
  for (const auto* file : files_) {
    messages += file->message_type_count();
    for (int i = 0; i < file->message_type_count(); ++i) compare(*file->message_type(i));
    for (int i = 0; i < file->enum_type_count(); ++i) compare(*file->enum_type(i));
    for (int i = 0; i < file->service_count(); ++i) compare(*file->service(i));
  }
  EXPECT_GT(messages, 50);
  EXPECT_THAT(lost_, ::testing::IsEmpty());
}

constexpr const char* kFrozen[] = {MUSTER_FROZEN_WIRES};
INSTANTIATE_TEST_SUITE_P(Released, Messages, ::testing::ValuesIn(kFrozen));

}  // namespace
}  // namespace test
