// Goal: a save that was cut off is known for one, and a whole one never is.
// Method: files as torch.save, safetensors, torch.distributed.checkpoint and the Trainer of transformers write them,
// cut at every length.
#include "base/torn_save.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>

#include "tests/temporary_folder.h"

namespace base {
namespace {

/// A zip archive of one stored entry, with a comment as long as said.
std::string zip(std::size_t comment = 0) {
  std::string end("PK\5\6", 4);
  end.append(16, '\0');
  end += static_cast<char>(comment & 0xFF);
  end += static_cast<char>(comment >> 8);
  return std::string("PK\3\4", 4) + std::string(200, 'w') + std::string("PK\1\2", 4) + std::string(42, 'd') + end +
         std::string(comment, 'c');
}

std::string safetensors() {
  const std::string header = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                             R"("b":{"dtype":"F32","shape":[4],"data_offsets":[8,24]}})";
  const std::uint64_t bytes = header.size();
  return std::string(reinterpret_cast<const char*>(&bytes), sizeof bytes) + header + std::string(24, 'x');
}

class TornSave : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) {
    const auto path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
    return path.string();
  }
  test::TemporaryFolder folder_;
};

TEST_F(TornSave, AFileIsKnownByItsEndHoweverMuchIsMissing) {
  for (const auto& [name, bytes] :
       {std::pair<std::string, std::string>{"a.pt", zip()}, {"b.ckpt", zip(300)}, {"c.safetensors", safetensors()}}) {
    EXPECT_EQ(why_torn(write(name, bytes)), "") << name;
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_NE(why_torn(write(name, bytes.substr(0, size))), "") << name << " cut to " << size << " bytes";
    }
  }
  EXPECT_EQ(why_torn(write("c.safetensors", safetensors().substr(0, 120))), "c.safetensors has 120 of 140 bytes");
  EXPECT_EQ(why_torn(write("a.pt", zip().substr(0, 100))), "a.pt has no end");
}

TEST_F(TornSave, AnEmptyFileOfWeightsIsNone) {
  EXPECT_EQ(why_torn(write("model.pt", "")), "model.pt is empty");
  write("step-2/model.pt", zip());
  EXPECT_EQ(why_torn((folder_ / "step-2").string()), "");
  write("step-2/optimizer.bin", "");
  EXPECT_EQ(why_torn((folder_ / "step-2").string()), "optimizer.bin is empty");
}

TEST_F(TornSave, APickleEndsWithItsStop) {
  const std::string pickle(
      "\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00\x8c\x01"
      "a\x94.",
      16);
  for (const char* name : {"state.pkl", "model.PTH", "model.joblib"}) {
    EXPECT_EQ(why_torn(write(name, pickle)), "") << name;
    EXPECT_EQ(why_torn(write(name, pickle.substr(0, 9))), std::string(name) + " is a pickle without its end");
  }
  EXPECT_EQ(why_torn(write("data.bin", pickle.substr(0, 9))), "") << "nobody knows what a .bin ends with";
}

TEST_F(TornSave, WhatHasNoKnownEndIsTakenForWhole) {
  EXPECT_EQ(why_torn(write("state.bin", "anything")), "");
  EXPECT_EQ(why_torn(write("step-1/_SUCCESS", "")), "it is empty");
  write("step-1/model.pt", zip());
  write("step-1/__1_0.distcp", "");
  write("step-1/.metadata", "x");
  EXPECT_EQ(why_torn((folder_ / "step-1").string()), "") << "marks, and ranks that have nothing to save";
  EXPECT_EQ(why_torn(write(
                "old.pt", std::string("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e", 15) + "weights")),
            "")
      << "torch.save without an archive ends with weights";
  EXPECT_EQ(why_torn((folder_ / "none").string()), "");
}

TEST_F(TornSave, AFolderIsTornByAnyFileBelowIt) {
  write("step-40/a/model.pt", zip());
  const auto path = (folder_ / "step-40").string();
  EXPECT_EQ(why_torn(path), "");
  write("step-40/a/optimizer.pt", zip().substr(0, 60));
  EXPECT_EQ(why_torn(path), "optimizer.pt has no end");
}

TEST_F(TornSave, WhatIsWrittenLastMustBeThere) {
  const auto path = (folder_ / "dcp").string();
  write("dcp/__0_0.distcp", "x");
  EXPECT_EQ(why_torn(path), "there is no .metadata, which is written last");
  write("dcp/.metadata", "x");
  EXPECT_EQ(why_torn(path), "");
  const auto trainer = (folder_ / "checkpoint-500").string();
  write("checkpoint-500/training_args.bin", zip());
  EXPECT_EQ(why_torn(trainer), "") << "a Trainer may save the model alone";
  write("checkpoint-500/optimizer.pt", zip());
  EXPECT_EQ(why_torn(trainer), "there is no trainer_state.json, which is written last");
  write("checkpoint-500/trainer_state.json", "{}");
  EXPECT_EQ(why_torn(trainer), "");
}

TEST_F(TornSave, AllPartsMustBeThere) {
  const auto path = (folder_ / "s").string();
  write("s/model-00001-of-00003.safetensors", safetensors());
  write("s/model-00003-of-00003.safetensors", safetensors());
  EXPECT_EQ(why_torn(path), "2 of 3 parts are there");
  write("s/model-00002-of-00003.safetensors", safetensors());
  EXPECT_EQ(why_torn(path), "");
  write("s/best-of-breed.txt", "x");
  EXPECT_EQ(why_torn(path), "");
  write("s/rank-00000-of-00002.safetensors", safetensors());
  EXPECT_EQ(why_torn(path), "1 of 2 parts are there");
  write("s/rank-00001-of-00002.safetensors", safetensors());
  EXPECT_EQ(why_torn(path), "") << "numbers from 0";
  write("s/model-00001-of-00004.safetensors", safetensors());
  EXPECT_EQ(why_torn(path), "") << "a part that is left of another save";
}

TEST_F(TornSave, AStepOfSoManyIsNoPart) {
  for (const char* name : {"step100-of-4000.pt", "step100-of-400.pt", "step-00100-of-04000.pt", "epoch-1-of-3.pt",
                           "100-of-4000.pt", "ckpt_1_of_9.pt", "model-1-of-9.pt", "model-00001-of-04000.pt"}) {
    EXPECT_EQ(why_torn(write(std::string("out/") + name, zip())), "") << name;
  }
  EXPECT_EQ(why_torn((folder_ / "out").string()), "");
}

TEST_F(TornSave, AnIndexTellsThatFilesAreParts) {
  const auto one = write("s/pytorch_model-1-of-3.bin", "x");
  EXPECT_EQ(why_torn((folder_ / "s").string()), "");
  write("s/pytorch_model.bin.index.json", "{}");
  EXPECT_EQ(why_torn((folder_ / "s").string()), "1 of 3 parts are there");
  EXPECT_EQ(why_torn(one), "1 of 3 parts are there") << "also by the name of one part";
}

TEST_F(TornSave, WhatIsOnlyReadInPartIsTakenForWhole) {
  const auto one = write("s/model-00001-of-00003.safetensors", safetensors());
  write("s/model-00003-of-00003.safetensors", safetensors());
  const auto path = (folder_ / "s").string();
  for (const auto& save : {path, one}) {
    EXPECT_EQ(why_torn(save, 2), "2 of 3 parts are there");
    EXPECT_EQ(why_torn(save, 1), "") << "the other parts may be among what was not read";
  }
  const auto torn = write("s/model-00001-of-00003.safetensors", safetensors().substr(0, 120));
  EXPECT_EQ(why_torn(torn, 1), "model-00001-of-00003.safetensors has 120 of 140 bytes")
      << "a file that is named is read";
}

TEST_F(TornSave, OnlyTheFilesThatAreNamedCount) {
  write("r/step-1.pt", zip());
  write("r/step-2.pt", zip().substr(0, 50));
  EXPECT_EQ(why_torn(folder_ / "r", std::vector<std::string>{"step-1.pt"}), "");
  EXPECT_EQ(why_torn(folder_ / "r", std::vector<std::string>{"step-2.pt"}), "step-2.pt has no end");
}

}  // namespace
}  // namespace base
