// Goal: DINOv2 computes what Hugging Face's models compute on the same weights, Hugging Face reads what we write, and
// heads, losses, votes and augmentations of self-distillation are those of a second computation. Method:
// tests/peers/families_peer.py makes tiny models with every switch, and tests/peers/dino_judge.py computes the rest.
// Skipped without a Python for them; see peer_python.h.
#include <gmock/gmock.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "fsdp/engine/fully_shard.h"
#include "fsdp/files/export.h"
#include "fsdp/files/safetensors.h"
#include "fsdp/files/tensor_files.h"
#include "tests/worker/peer_python.h"
#include "worker/batch/augment.h"
#include "worker/metrics/nearest_neighbours.h"
#include "worker/models/config_json.h"
#include "worker/models/dinov2/dinov2_model.h"
#include "worker/models/dinov2/heads.h"
#include "worker/models/family.h"
#include "worker/recipes/dino_loss.h"

namespace worker {
namespace {

namespace fs = std::filesystem;
using testing::expect_close;
using testing::folders_in;
using testing::read_file;
using testing::TemporaryFolder;

/// A DINOv2 of a folder of transformers, as one rank trains it.
class LoadedDinov2 {
 public:
  explicit LoadedDinov2(const fs::path& folder)
      : values(dinov2_family().read(fsdp::Json::parse(read_file(folder / kModelConfigFile)))),
        model(std::make_shared<Dinov2Model>(spec::bind<spec::Dinov2>(spec::dinov2(), values))),
        sharded(model, alone_) {
    for (const auto& block : model->blocks()) sharded.fully_shard(block);
    sharded.fully_shard(model);
    const FileNames& names = dinov2_family().names;
    const auto parameters = model->named_parameters();
    const auto is_parameter = [&](const std::string& name) { return parameters.contains(name); };
    const fsdp::TensorFiles files(folder);
    const auto lacking = fsdp::load_tensors(
        sharded, files,
        {.parameter_of = [&](const std::string& in_file) { return parameter_in(names, in_file, is_parameter); },
         .may_ignore = [&](const std::string& in_file) { return names.may_ignore(in_file, values); },
         .may_lack = [&](const std::string& parameter) { return names.may_lack(parameter); }});
    EXPECT_TRUE(lacking.empty());
  }

 private:
  fsdp::DeviceMesh alone_{nullptr, 0, 1, {}};

 public:
  spec::Values values;
  std::shared_ptr<Dinov2Model> model;
  fsdp::ShardedModel sharded;
};

/// Tensors of a file that lives as long as this object.
class Expected {
 public:
  explicit Expected(const fs::path& path) : reader_(path) {}
  bool has(const std::string& name) const { return reader_.contains(name); }
  at::Tensor operator()(const std::string& name) const { return reader_.tensor(name).clone(); }
  /// The tensor as a leaf whose gradient is compared.
  at::Tensor leaf(const std::string& name) const { return (*this)(name).requires_grad_(); }

 private:
  fsdp::SafetensorsReader reader_;
};

using Dinov2Peers = testing::PeerTest;

void expect_gradients(const Dinov2Model& model, const Expected& expected) {
  int compared = 0;
  for (const auto& item : model.named_parameters()) {
    std::string name = "grad/" + item.key();
    for (const char* base : {"dinov2.", "dinov2_with_registers."}) {
      if (expected.has("grad/" + std::string(base) + item.key())) name = "grad/" + std::string(base) + item.key();
    }
    EXPECT_EQ(item.value().grad().defined(), expected.has(name)) << name;  // a mask token without masks has none
    if (!expected.has(name)) continue;
    ++compared;
    expect_close(item.value().grad(), expected(name), "gradient of " + item.key());
  }
  EXPECT_GT(compared, 30);
}

TEST_F(Dinov2Peers, TokensLossAndGradientsAgreeAndTheExportIsRead) {
  const TemporaryFolder theirs, ours;
  peer("make", theirs.path(), "dinov2");
  const auto cases = folders_in(theirs.path());
  EXPECT_EQ(cases.size(), 18u);
  for (const auto& folder : cases) {
    SCOPED_TRACE(folder.filename());
    LoadedDinov2 loaded(folder);
    const Expected expected(folder / "expected.safetensors");
    const at::Tensor pixels = expected("pixels"), masks = expected.has("masks") ? expected("masks") : at::Tensor();
    const at::Tensor tokens = loaded.model->forward(pixels, masks).tokens;
    expect_close(tokens, expected("tokens"), "tokens");
    const at::Tensor loss = tokens.pow(3).mean();
    expect_close(loss, expected("loss"), "loss");
    loss.backward();
    expect_gradients(*loaded.model, expected);
    fsdp::Json config;  // as from scratch
    dinov2_family().write(loaded.values, dinov2_family().architectures.front(), config);
    write_dtype(config, at::kFloat);
    fsdp::ExportOptions options;
    options.folder = ours / folder.filename().native();
    options.max_file_bytes = 20'000;
    options.texts[kModelConfigFile] = config.dump();
    options.texts[kPreprocessorFile] = dinov2_preprocessor(loaded.values).dump();
    EXPECT_GT(fsdp::export_model(loaded.sharded, options).files.size(), 2u);
    std::vector<std::pair<std::string, at::Tensor>> inputs{{"pixels", pixels}};
    if (masks.defined()) inputs.emplace_back("masks", masks);
    fsdp::write_safetensors(options.folder / "inputs.safetensors", inputs);
  }
  peer("run", ours.path(), "dinov2");
  for (const auto& folder : folders_in(ours.path())) {
    const Expected want(theirs.path() / folder.filename() / "expected.safetensors"),
        got(folder / "outputs.safetensors");
    expect_close(got("tokens"), want("tokens"), "what transformers makes of our " + folder.native());
  }
}

class DinoJudge : public testing::PeerTest {
 protected:
  Expected judged(const std::string& judge) const {
    testing::run_peer(python_, "dino_judge.py", {folder_.path().native(), judge}, folder_.path());
    return Expected(folder_ / (judge + ".safetensors"));
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(DinoJudge, TheHeadAgrees) {
  const Expected expected = judged("head");
  DinoHead head(16, {.hidden = 24, .bottleneck = 8, .prototypes = 20, .layers = 3});
  const auto parameters = head.named_parameters();
  for (const auto& item : parameters) item.value().set_data(expected(item.key()));
  const at::Tensor x = expected.leaf("x"), out = head.forward(x);
  expect_close(out, expected("out"), "answers");
  out.square().sum().backward();
  expect_close(x.grad(), expected("grad/x"), "gradient of the input");
  for (const auto& item : parameters) expect_close(item.value().grad(), expected("grad/" + item.key()), item.key());
}

TEST_F(DinoJudge, TargetsAndLossesAgree) {
  const Expected expected = judged("losses");
  const at::Tensor teacher = expected("teacher"), centre = expected("centre");
  const at::Tensor targets = centred_softmax(teacher, centre, 0.07);
  expect_close(targets, expected("targets"), "centred targets");
  expect_close(updated_centre(centre, teacher, 0.9, over_one_rank), expected("centre_after"), "the centre");
  const auto sinkhorn = [&](const at::Tensor& rows) {
    return sinkhorn_knopp(rows, 0.07, 3, over_one_rank, over_one_rank);
  };
  expect_close(sinkhorn(teacher), expected("sinkhorn_of_crops"), "balanced targets");
  const at::Tensor patches = sinkhorn(expected("teacher_patches"));
  expect_close(patches, expected("patches"), "balanced targets of patches");
  const at::Tensor global = expected.leaf("student_global"), local = expected.leaf("student_local"),
                   of_patches = expected.leaf("student_patches"), features = expected.leaf("features");
  const at::Tensor dino = dino_loss(global, local, targets, 0.1),
                   ibot = ibot_loss(of_patches, patches, expected("weights"), 6, 0.1), koleo = koleo_loss(features);
  expect_close(dino, expected("dino"), "DINO");
  expect_close(ibot, expected("ibot"), "iBOT");
  expect_close(koleo, expected("koleo"), "KoLeo");
  (dino + ibot + 0.1 * koleo).backward();
  expect_close(global.grad(), expected("grad/student_global"), "gradient of global crops");
  expect_close(local.grad(), expected("grad/student_local"), "gradient of local crops");
  expect_close(of_patches.grad(), expected("grad/student_patches"), "gradient of patches");
  expect_close(features.grad(), expected("grad/features"), "gradient of features");
}

TEST_F(DinoJudge, VotesOfNeighboursAgree) {
  const Expected expected = judged("knn");
  EXPECT_DOUBLE_EQ(
      knn_accuracy(expected("bank"), expected("bank_labels"), expected("queries"), expected("labels"), 20, 0.07),
      expected("accuracy").item<double>());
}

TEST_F(DinoJudge, StepsOfTheAugmentationAgree) {
  const Expected expected = judged("pixels");
  const at::Tensor bytes = expected("bytes").contiguous(), image = expected("image");
  const data::format::Image whole{
      .rgb = std::span(bytes.const_data_ptr<std::uint8_t>(), static_cast<std::size_t>(bytes.numel())),
      .height = static_cast<int>(bytes.size(0)),
      .width = static_cast<int>(bytes.size(1))};
  for (int i = 0; i < 3; ++i) {
    const at::Tensor want = expected("resized" + std::to_string(i)), box = expected("box" + std::to_string(i));
    const auto at = [&](int place) { return box[place].item<std::int64_t>(); };
    expect_close(
        resized_part(whole, {.top = at(0), .left = at(1), .height = at(2), .width = at(3)}, want.size(1), want.size(2)),
        want, "box " + std::to_string(i));
  }
  expect_close(with_brightness(image, 1.4), expected("brightness"), "brightness");
  expect_close(with_contrast(image, 0.7), expected("contrast"), "contrast");
  expect_close(with_saturation(image, 1.2), expected("saturation"), "saturation");
  expect_close(with_hue(image, 0.07), expected("hue"), "hue");
  expect_close(grey(image), expected("grey"), "grey");
  expect_close(blurred(image, 1.3), expected("blurred"), "blurred");
  expect_close(solarized(image, 128.0 / 255), expected("solarized"), "solarized");
  expect_close(normalised(image), expected("normalised"), "normalised");
}

}  // namespace
}  // namespace worker
