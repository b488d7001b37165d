// Goal: an export holds what other programs want to read: other names, a selection, values computed from several
// parameters, and files of others beside them.
// Method: matrices with adapters, whose frozen part is kept in bf16, read back and compared with whole tensors.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/module.h>

#include <filesystem>
#include <set>

#include "fsdp/files/export.h"
#include "fsdp/files/safetensors.h"
#include "fsdp/text/json.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/ranks.h"
#include "tests/fsdp/temporary_folder.h"
#include "tests/fsdp/thread_ranks.h"

namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

/// A frozen matrix [5, 7] with an adapter of rank 2 that trains.
struct AdaptedMatrix : torch::nn::Module {
  explicit AdaptedMatrix(double begin) {
    const auto values = [begin](std::int64_t rows, std::int64_t columns) {
      return at::sin(at::arange(rows * columns, at::kFloat) + begin).reshape({rows, columns});
    };
    register_parameter("weight", values(5, 7), /*requires_grad=*/false);
    register_parameter("lora_a", values(2, 7) * 2);
    register_parameter("lora_b", values(5, 2) * 3);
  }
};

/// Two of them, and a gain of the root.
struct AdaptedModel : torch::nn::Module {
  AdaptedModel() {
    register_parameter("gain", at::arange(3, at::kFloat));
    first = register_module("first", std::make_shared<AdaptedMatrix>(0.5));
    second = register_module("second", std::make_shared<AdaptedMatrix>(0.7));
  }
  std::shared_ptr<AdaptedMatrix> first, second;
};

struct ShardedAdapted {
  explicit ShardedAdapted(fsdp::DeviceMesh& mesh) : model(std::make_shared<AdaptedModel>()), sharded(model, mesh) {
    fsdp::ShardOptions options;
    options.precision.param_dtype = at::kBFloat16;
    sharded.fully_shard(model->first, options);
    sharded.fully_shard(model->second, options);
    sharded.fully_shard(model, options);
  }
  std::shared_ptr<AdaptedModel> model;
  fsdp::ShardedModel sharded;
};

bool is_adapter(const std::string& parameter) {
  return parameter.find(".lora_") != std::string::npos;
}

/// weight + b a / 2
at::Tensor merged(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b) {
  return weight + at::matmul(b, a) * 0.5;
}

fsdp::ExportOptions merging_to(const fs::path& folder) {
  fsdp::ExportOptions options;
  options.folder = folder;
  options.dtype = at::kFloat;
  options.name_of = [](const std::string& parameter) -> std::optional<std::string> {
    if (is_adapter(parameter)) return std::nullopt;
    return "model." + parameter;
  };
  options.value_of = [](const std::string& parameter, const at::Tensor& value, const auto& of_unit) {
    if (!parameter.ends_with(".weight")) return value;
    const std::string path = parameter.substr(0, parameter.rfind('.'));
    return merged(value, of_unit(path + ".lora_a"), of_unit(path + ".lora_b"));
  };
  return options;
}

fsdp::ExportOptions adapters_to(const fs::path& folder) {
  fsdp::ExportOptions options;
  options.folder = folder;
  options.file_stem = "adapter_model";
  options.name_of = [](const std::string& parameter) -> std::optional<std::string> {
    if (!is_adapter(parameter)) return std::nullopt;
    return "base_model.model." + parameter;
  };
  return options;
}

std::set<std::string> files_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

TEST(ExportNames, MergeAdaptersIntoMatricesOfTheSameUnit) {
  for (const int world_size : kWorldSizes) {
    const TemporaryFolder folder;
    run_thread_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
      ShardedAdapted model(mesh);
      fsdp::export_model(model.sharded, merging_to(folder / "out"));
      const auto state = model.sharded.gather_full_state();
      const fsdp::SafetensorsReader file(folder / "out/model.safetensors");
      EXPECT_EQ(file.entries().size(), 3u);
      EXPECT_TRUE(at::equal(file.tensor("model.gain"), state.at("gain")));
      for (const std::string path : {"first", "second"})
        EXPECT_TRUE(at::allclose(
            file.tensor("model." + path + ".weight"),
            merged(state.at(path + ".weight"), state.at(path + ".lora_a"), state.at(path + ".lora_b")), 1e-6, 1e-7))
            << path;
    });
  }
}

TEST(ExportNames, LeaveOutWhatIsNotWantedAndGatherNothingOfIt) {
  const TemporaryFolder folder;
  test::write_file(folder / "base/tokenizer.json", "{\"a\":1}");
  run_thread_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    ShardedAdapted model(mesh);
    fsdp::ExportOptions options = adapters_to(folder / "out");
    options.texts["adapter_config.json"] = "{}";
    options.copies = {folder / "base/tokenizer.json"};
    const std::int64_t before = mesh.traffic().gathered_bytes;
    const auto out = fsdp::export_model(model.sharded, options);
    const std::int64_t gathered = mesh.traffic().gathered_bytes - before;
    std::int64_t wanted = 0;
    for (const auto& unit : {model.sharded.units()[0], model.sharded.units()[1]})
      wanted += unit->segments().front()->layout().chunk() * 4;
    EXPECT_EQ(gathered, wanted) << "the adapters' segments alone, in fp32, to the one other rank";
    EXPECT_EQ(out.files, std::vector<std::string>{"adapter_model.safetensors"});
    const auto state = model.sharded.gather_full_state();
    const fsdp::SafetensorsReader file(folder / "out/adapter_model.safetensors");
    EXPECT_EQ(file.entries().size(), 4u);
    for (const auto& [name, value] : state) {
      if (!is_adapter(name)) continue;
      EXPECT_TRUE(at::equal(file.tensor("base_model.model." + name), value)) << name;
    }
  });
  EXPECT_EQ(files_in(folder / "out"), (std::set<std::string>{"adapter_config.json", "adapter_model.safetensors",
                                                             "tokenizer.json", fsdp::kExportMark}));
  EXPECT_EQ(test::read_file(folder / "out/tokenizer.json"), "{\"a\":1}");
}

TEST(ExportNames, AreThoseOfAllFilesAndTheirIndex) {
  const TemporaryFolder folder;
  run_thread_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    ShardedAdapted model(mesh);
    fsdp::ExportOptions options = adapters_to(folder / "out");
    options.max_file_bytes = 100;
    fsdp::export_model(model.sharded, options);
  });
  const auto index = fsdp::Json::parse(test::read_file(folder / "out/adapter_model.safetensors.index.json"));
  const auto& map = index.at("weight_map").as_object();
  EXPECT_EQ(map.size(), 4u);
  EXPECT_EQ(map.at("base_model.model.first.lora_a").as_string(), "adapter_model-00001-of-00002.safetensors");
  EXPECT_EQ(map.at("base_model.model.second.lora_b").as_string(), "adapter_model-00002-of-00002.safetensors");
}

TEST(ExportNames, ThatCannotBeAreErrorsOnEveryRankAndLeaveNothing) {
  const TemporaryFolder folder;
  run_thread_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    ShardedAdapted model(mesh);
    using Change = std::function<void(fsdp::ExportOptions&)>;
    const auto error = [&](const Change& change) {
      fsdp::ExportOptions options = merging_to(folder / "out");
      change(options);
      return error_of([&] { fsdp::export_model(model.sharded, options); });
    };
    EXPECT_THAT(error([](auto& o) { o.name_of = [](const std::string&) { return std::optional<std::string>("x"); }; }),
                HasSubstr("export: name_of gives parameter first.lora_b the name x, which another parameter has"));
    EXPECT_THAT(error([](auto& o) { o.name_of = [](const std::string&) { return std::optional<std::string>(); }; }),
                HasSubstr("no parameter is left to write; name_of leaves out all"));
    EXPECT_THAT(error([](auto& o) { o.file_stem = "a/b"; }), HasSubstr("file_stem \"a/b\": want a name without \"/\""));
    EXPECT_THAT(error([&](auto& o) { o.copies = {folder / "none.json"}; }),
                HasSubstr("cannot copy " + (folder / "none.json").native() + ": No such file"));
    EXPECT_THAT(error([&](auto& o) { o.copies = {folder / "model.safetensors"}; }),
                HasSubstr("model.safetensors: the export has another file of this name"));
    EXPECT_THAT(error([](auto& o) {
                  o.value_of = [](const std::string&, const at::Tensor& value, const auto&) { return value[0]; };
                }),
                HasSubstr("value_of gives [7] for parameter first.weight [5, 7]"));
    EXPECT_THAT(error([](auto& o) {
                  o.value_of = [](const std::string&, const at::Tensor&, const auto& of_unit) {
                    return of_unit("second.weight");
                  };
                }),
                HasSubstr("value_of asks for parameter second.weight, which is not in unit first"));
  });
  EXPECT_EQ(files_in(folder.path()), std::set<std::string>{});
}

}  // namespace
