// Goal: an export holds the whole model in files that others read, and is never half there.
// Method: exports of the small model, read back into another one.
#include "fsdp/files/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "fsdp/files/tensor_files.h"
#include "fsdp/text/json.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/ranks.h"
#include "tests/fsdp/small_model.h"
#include "tests/fsdp/temporary_folder.h"
#include "tests/fsdp/thread_ranks.h"

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::set<std::string> entries_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

fsdp::ExportOptions to(const fs::path& folder) {
  fsdp::ExportOptions options;
  options.folder = folder;
  options.texts["config.json"] = "{}";
  return options;
}

TEST(Export, OfAnyNumberOfRanksIsReadBackByAnyOther) {
  for (const int writers : kWorldSizes) {
    const TemporaryFolder folder;
    std::map<std::string, at::Tensor> want;
    run_thread_ranks(writers, [&](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      trainer.step(0);
      fsdp::export_model(trainer.sharded, to(folder / "out"));
      const auto state = trainer.sharded.gather_full_state();
      if (mesh.rank() == 0) want = state;
    });
    EXPECT_EQ(entries_in(folder / "out"),
              (std::set<std::string>{"config.json", "model.safetensors", fsdp::kExportMark}));
    EXPECT_EQ(entries_in(folder.path()), std::set<std::string>{"out"});
    EXPECT_EQ(test::read_file(folder / "out/config.json"), "{}");
    run_thread_ranks(2, [&](fsdp::DeviceMesh& mesh) {
      Trainer other(mesh, {}, /*seed=*/8);
      fsdp::load_tensors(other.sharded, fsdp::TensorFiles(folder / "out"));
      const auto state = other.sharded.gather_full_state();
      for (const auto& [name, value] : want) EXPECT_TRUE(at::equal(state.at(name), value)) << name;
    });
  }
}

TEST(Export, KeepsFilesBelowTheLimitAndListsThem) {
  const TemporaryFolder folder;
  std::vector<std::string> files;
  std::int64_t bytes = 0;
  run_thread_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    fsdp::ExportOptions options = to(folder / "out");
    options.max_file_bytes = 1600;  // a matrix of a block has 1508 bytes
    options.dtype = at::kFloat;
    const auto out = fsdp::export_model(trainer.sharded, options);
    if (mesh.rank() == 0) files = out.files, bytes = out.bytes;
  });
  ASSERT_EQ(files.size(), 10u);
  EXPECT_EQ(files[0], "model-00001-of-00010.safetensors");
  const auto index = fsdp::Json::parse(test::read_file(folder / "out" / fsdp::kModelIndex));
  EXPECT_EQ(index.at("metadata").at("total_size").as_int(), bytes);
  std::int64_t tensor_bytes = 0;
  std::size_t tensors = 0;
  for (const std::string& name : files) {
    const fsdp::SafetensorsReader file(folder / "out" / name);
    EXPECT_THAT(file.metadata(), ElementsAre(std::pair("format", "pt"))) << "transformers refuses others";
    std::int64_t in_file = 0;
    for (const auto& [tensor, entry] : file.entries()) {
      in_file += entry.end - entry.begin;
      EXPECT_EQ(index.at("weight_map").at(tensor).as_string(), name);
      ++tensors;
    }
    EXPECT_LE(in_file, 1600);
    tensor_bytes += in_file;
  }
  EXPECT_EQ(tensor_bytes, bytes);
  EXPECT_EQ(index.at("weight_map").size(), tensors);
  EXPECT_EQ(tensors, 1u + 3 * 7 + 1) << "a tied head is written once";
}

TEST(Export, ConvertsToTheWantedDtype) {
  const TemporaryFolder folder;
  run_thread_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    fsdp::ExportOptions options = to(folder / "out");
    options.dtype = at::kHalf;
    fsdp::export_model(trainer.sharded, options);
    const auto state = trainer.sharded.gather_full_state();
    const fsdp::SafetensorsReader file(folder / "out/model.safetensors");
    for (const auto& [name, entry] : file.entries())
      EXPECT_TRUE(at::equal(file.tensor(name), state.at(name).to(at::kHalf))) << name;
  });
}

TEST(Export, ReplacesAnEarlierExportOnly) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "empty");
  fs::create_directory(folder / "foreign");
  std::ofstream(folder / "foreign/tokenizer.json") << "{}";
  run_thread_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    for (int step = 0; step < 2; ++step) {
      fsdp::export_model(trainer.sharded, to(folder / "empty"));
      const auto state = trainer.sharded.gather_full_state();
      const fsdp::SafetensorsReader file(folder / "empty/model.safetensors");
      EXPECT_TRUE(at::equal(file.tensor("norm"), state.at("norm")));
      mesh.shard().barrier();
      trainer.step(step);
    }
    EXPECT_THAT(error_of([&] { fsdp::export_model(trainer.sharded, to(folder / "foreign")); }),
                HasSubstr("foreign holds other files than an earlier export (no muster_export.json), and an export "
                          "replaces the folder; choose another folder, or empty this one"));
  });
  EXPECT_EQ(entries_in(folder / "foreign"), std::set<std::string>{"tokenizer.json"});
  EXPECT_EQ(entries_in(folder.path()), (std::set<std::string>{"empty", "foreign"}));
}

// Two jobs that export to "out" and "out-2" at one time had removed each other's files.
TEST(Export, RemovesWhatAKilledExportHasLeftAndNothingOfANeighbour) {
  const TemporaryFolder folder;
  for (const char* name : {".tmp-export-out-a1B2c3", ".tmp-replaced.tmp-export-out-a1B2c3", ".tmp-export-out-2-a1B2c3",
                           ".tmp-export-out-claim"})
    std::filesystem::create_directories(folder / name);
  run_thread_ranks(1, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    fsdp::ExportOptions options = to(folder / "out");
    EXPECT_EQ(fsdp::export_origin(folder / "out"), "") << "there is none";
    fsdp::export_model(trainer.sharded, options);
    EXPECT_EQ(fsdp::export_origin(folder / "out"), "") << "it does not say";
    options.origin = "job 7";
    fsdp::export_model(trainer.sharded, options);
    EXPECT_EQ(fsdp::export_origin(folder / "out"), "job 7");
  });
  EXPECT_EQ(entries_in(folder.path()),
            (std::set<std::string>{"out", ".tmp-export-out-2-a1B2c3", ".tmp-export-out-claim"}));
}

TEST(Export, ThatFailsOnRankZeroFailsOnAllAndLeavesTheEarlierOne) {
  const TemporaryFolder folder;
  run_thread_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    fsdp::export_model(trainer.sharded, to(folder / "out"));
    trainer.step(0);
    fsdp::ExportOptions options = to(folder / "out");
    options.texts["none/config.json"] = "{}";
    EXPECT_THAT(error_of([&] { fsdp::export_model(trainer.sharded, options); }), HasSubstr("none/config.json"));
    mesh.shard().barrier();
    if (mesh.rank() == 0) {
      const fsdp::SafetensorsReader file(folder / "out/model.safetensors");
      EXPECT_TRUE(at::equal(file.tensor("norm"), at::ones({kWidth})));
    }
  });
  EXPECT_EQ(entries_in(folder.path()), std::set<std::string>{"out"}) << "the half export is removed";
}

}  // namespace
