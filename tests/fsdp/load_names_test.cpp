// Goal: files whose names differ from the model's, or that lack parameters, give exactly the values that they have.
// Method: the small model on the meta device, and files with a prefix, without parameters, and with too many tensors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "fsdp/engine/initialize.h"
#include "fsdp/files/tensor_files.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/ranks.h"
#include "tests/fsdp/small_model.h"
#include "tests/fsdp/temporary_folder.h"
#include "tests/fsdp/thread_ranks.h"

namespace {

using fsdp::LoadNames;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Values = std::map<std::string, at::Tensor>;

void draw_narrow(const std::string&, const at::Tensor& values, at::Generator& random) {
  values.normal_(0, 0.1, random);
}

/// The values of the whole small model. Files hold them without the tied head.
Values drawn_values(std::uint64_t seed) {
  const auto model = std::make_shared<SmallModel>();
  fsdp::initialize(*model, seed, draw_narrow);
  Values values;
  for (const auto& item : model->named_parameters()) values[item.key()] = item.value().detach();
  return values;
}

/// Writes the values under names that begin with "m.".
fsdp::TensorFiles prefixed_files(const TemporaryFolder& folder, const Values& values) {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto& [name, value] : values)
    if (name != "head") tensors.emplace_back("m." + name, value);
  fsdp::write_safetensors(folder / "model.safetensors", tensors);
  return fsdp::TensorFiles(folder.path());
}

LoadNames prefixed() {
  LoadNames names;
  names.parameter_of = [](const std::string& in_file) { return in_file.substr(2); };
  return names;
}

/// A sharded small model without values.
struct Unfilled {
  explicit Unfilled(fsdp::DeviceMesh& mesh)
      : model([] {
          const fsdp::MetaDeviceGuard without_memory;
          return std::make_shared<SmallModel>();
        }()),
        sharded(model, mesh) {
    for (const auto& block : model->blocks) block->wrap = wrapper(sharded.fully_shard(block));
    model->wrap = wrapper(sharded.fully_shard(model));
  }
  std::shared_ptr<SmallModel> model;
  fsdp::ShardedModel sharded;
};

void expect_values(fsdp::ShardedModel& model, const Values& want) {
  const Values got = model.gather_full_state();
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, value] : want) EXPECT_TRUE(at::equal(got.at(name), value)) << name;
}

TEST(LoadNames, FindTheParameterOfATensorWithAnotherName) {
  const TemporaryFolder folder;
  const Values values = drawn_values(3);
  Values more = values;
  more["position_ids"] = at::arange(5);
  prefixed_files(folder, more);
  LoadNames names = prefixed();
  names.may_ignore = [](const std::string& in_file) { return in_file == "m.position_ids"; };
  for (const int world_size : {1, 3}) {
    run_thread_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      Unfilled model(mesh);
      EXPECT_THAT(fsdp::load_tensors(model.sharded, fsdp::TensorFiles(folder.path()), names), IsEmpty());
      expect_values(model.sharded, values);
    });
  }
}

TEST(LoadNames, TellWhatFilesLackSoThatItIsDrawn) {
  const TemporaryFolder folder;
  const Values read = drawn_values(3), drawn = drawn_values(4);
  const std::set<std::string> lacking = {"block1.up", "norm"};
  Values in_files = read, want = read;
  for (const std::string& name : lacking) in_files.erase(name), want[name] = drawn.at(name);
  prefixed_files(folder, in_files);
  LoadNames names = prefixed();
  names.may_lack = [&](const std::string& parameter) { return lacking.count(parameter) != 0; };
  for (const int world_size : kWorldSizes) {
    run_thread_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      Unfilled model(mesh);
      const auto lacked = fsdp::load_tensors(model.sharded, fsdp::TensorFiles(folder.path()), names);
      EXPECT_THAT(lacked, ElementsAre("block1.up", "norm"));
      EXPECT_THAT(
          error_of([&] { model.sharded.gather_full_state(); }),
          HasSubstr("unit block1: gather_full_state needs values, and parameter block1.up was built on the meta "
                    "device; call initialize()"));
      const auto is_lacked = [&](const std::string& name) {
        return std::find(lacked.begin(), lacked.end(), name) != lacked.end();
      };
      fsdp::initialize(model.sharded, 4, draw_narrow, is_lacked);
      expect_values(model.sharded, want);
    });
  }
}

TEST(LoadNames, LeaveToALackedParameterTheValuesThatItHas) {
  const TemporaryFolder folder;
  Values values = drawn_values(3);
  const at::Tensor before = make_model(7)->blocks[0]->down.detach().clone();
  values.erase("block0.down");
  prefixed_files(folder, values);
  values["block0.down"] = before;
  LoadNames names = prefixed();
  names.may_lack = [](const std::string& parameter) { return parameter == "block0.down"; };
  run_thread_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    EXPECT_THAT(fsdp::load_tensors(trainer.sharded, fsdp::TensorFiles(folder.path()), names),
                ElementsAre("block0.down"));
    expect_values(trainer.sharded, values);
  });
}

TEST(LoadNames, TellEveryFindingWithBothNamesAndChangeNothing) {
  const TemporaryFolder folder;
  fsdp::DeviceMesh alone(nullptr, 0, 1, {});
  Unfilled model(alone);
  const Values before = drawn_values(1);
  fsdp::initialize(model.sharded, 1, draw_narrow);
  Values wrong = drawn_values(2);
  wrong.erase("block0.up");
  wrong["block0.down"] = at::zeros({29, 13});
  wrong["block0.bias"] = wrong["block0.bias"].to(at::kInt);
  wrong["block0.extra"] = at::zeros({2});
  const fsdp::TensorFiles files = prefixed_files(folder, wrong);
  const std::string error = error_of([&] { fsdp::load_tensors(model.sharded, files, prefixed()); });
  EXPECT_THAT(error, HasSubstr("no tensor for block0.up [29, 13]"));
  EXPECT_THAT(error, HasSubstr("m.block0.down (for block0.down) is [29, 13], the model wants [13, 29]"));
  EXPECT_THAT(error, HasSubstr("m.block0.bias (for block0.bias) is Int, want float32, bfloat16 or float16"));
  EXPECT_THAT(error, HasSubstr("the model has no parameter block0.extra for tensor m.block0.extra"));
  expect_values(model.sharded, before);
}

/// One parameter.
struct OneNorm : torch::nn::Module {
  OneNorm() : norm(register_parameter("norm", at::zeros({4}))) {}
  at::Tensor norm;
};

/// The value of a model's "norm" from files whose tensors all end with "norm", each full of another number.
std::string norm_from(const std::map<std::string, double>& tensors, const std::set<std::string>& ignored) {
  const TemporaryFolder folder;
  std::vector<std::pair<std::string, at::Tensor>> written;
  for (const auto& [name, value] : tensors) written.emplace_back(name, at::full({4}, value));
  fsdp::write_safetensors(folder / "model.safetensors", written);
  LoadNames names;
  names.parameter_of = [](const std::string&) { return "norm"; };
  names.may_ignore = [&](const std::string& in_file) { return ignored.count(in_file) != 0; };
  fsdp::DeviceMesh alone(nullptr, 0, 1, {});
  const auto model = std::make_shared<OneNorm>();
  fsdp::ShardedModel sharded(model, alone);
  sharded.fully_shard(model);
  const std::string error = error_of([&] { fsdp::load_tensors(sharded, fsdp::TensorFiles(folder.path()), names); });
  return error == "no error" ? std::to_string(model->norm[3].item<int>()) : error;
}

// The shared embedding of T5 is such a parameter: files hold any selection of its names.
TEST(LoadNames, ChooseAmongSeveralTensorsOfOneParameter) {
  EXPECT_EQ(norm_from({{"a.norm", 1}, {"norm", 2}}, {"a.norm"}), "2") << "the parameter's own name";
  EXPECT_EQ(norm_from({{"a.norm", 1}, {"b.norm", 2}}, {"a.norm"}), "2") << "the one that may not be ignored";
  EXPECT_EQ(norm_from({{"a.norm", 1}}, {"a.norm"}), "1") << "ignoring means that it may be left over";
  EXPECT_EQ(norm_from({{"a.norm", 1}, {"b.norm", 2}}, {"a.norm", "b.norm"}), "1") << "the first";
  EXPECT_THAT(norm_from({{"a.norm", 1}, {"b.norm", 2}}, {}),
              HasSubstr("tensors a.norm and b.norm are both given for norm"));
  EXPECT_THAT(norm_from({{"a.norm", 1}, {"norm", 2}}, {}),
              HasSubstr("tensors norm and a.norm are both given for norm"));
}

}  // namespace
