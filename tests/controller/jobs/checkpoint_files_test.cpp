// Goal: whether a program has saved anything is seen from its files alone, whatever clocks say and whatever else lies
// there. Method: folders as programs leave them.
#include "controller/jobs/progress_watch.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <utime.h>

#include <fstream>

#include "tests/controller/service/bench.h"

namespace jobs::testing {
namespace {

class CheckpointFiles : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    const auto path = folder_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void date(const std::string& name, std::time_t at) {
    const utimbuf times{at, at};
    ASSERT_EQ(::utime((folder_.path() / name).c_str(), &times), 0);
  }
  FolderContents look() { return look_into(folder_.path()); }
  /// The newest file and the count of files that are new after `change`; "" for none.
  template <class Change>
  std::string fresh_after(Change change) {
    const auto before = look();
    change();
    const auto seen = compare(1, before, look());
    return seen ? seen->newest + " " + std::to_string(seen->fresh) : "";
  }

  service::testing::TempFolder folder_;
};

TEST_F(CheckpointFiles, NewAndChangedFilesAreNew) {
  write("step-1/model.pt", "a");
  write("state", "1");
  date("state", 1000);
  EXPECT_EQ(fresh_after([] {}), "");
  EXPECT_EQ(fresh_after([&] { write("step-2/deep/down/model.pt", "b"); }), "step-2 1");
  EXPECT_EQ(fresh_after([&] { write("state", "22"); }), "state 1");
  date("state", 2000);
  EXPECT_EQ(fresh_after([&] { date("state", 500); }), "state 1") << "a node whose clock is behind";
  EXPECT_EQ(fresh_after([&] {
              write("step-3/a", "1"), date("step-3/a", 5000);
              write("step-4/a", "1"), date("step-4/a", 4000);
            }),
            "step-3 2");
}

TEST_F(CheckpointFiles, WhatIsDeletedOrNoCheckpointIsNotNew) {
  write("step-1/model.pt", "a");
  write("step-2/model.pt", "a");
  EXPECT_EQ(fresh_after([&] { std::filesystem::remove_all(folder_.path() / "step-1"); }), "");
  EXPECT_EQ(fresh_after([&] {
              for (const char* name : {"FENCE", "FENCE.lock", "train.log", "runs/Nov23/events.out.tfevents.1.host",
                                       "rank-0.err", "rank-0.out", "wandb/run-1/files/x", ".tmp-save", ".hidden/x",
                                       "step-3.tmp", "a.pid", "mlruns/0/meta.yaml", "code/__pycache__/train.pyc"}) {
                write(name, "x");
              }
              std::filesystem::create_directory(folder_.path() / "empty");
            }),
            "");
  EXPECT_EQ(fresh_after([&] { write("runs/Nov23/checkpoint-40/model.safetensors", "x"); }), "runs 1")
      << "beside what is left out";
}

TEST_F(CheckpointFiles, AFolderThatIsNotThereIsEmpty) {
  const auto none = look_into(folder_.path() / "none");
  EXPECT_TRUE(none.entries.empty());
  EXPECT_EQ(none.trouble, "");
}

TEST_F(CheckpointFiles, WhatCannotBeReadIsNotKnown) {
  write("file", "x");
  const auto no_folder = look_into(folder_.path() / "file" / "below");
  EXPECT_THAT(no_folder.trouble, ::testing::HasSubstr("/file/below: "));
  const auto seen = compare(2, no_folder, look());
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->trouble, no_folder.trouble);
  EXPECT_EQ(seen->fresh, 0U);
}

TEST_F(CheckpointFiles, WhatIsNotedReadsBackAsItWas) {
  write("step-1/model.pt", "a");
  write("caf\xc3\xa9 \"4\"", "b");
  const auto contents = look();
  EXPECT_EQ(contents.entries.size(), 2U);
  EXPECT_EQ(contents_from_text(to_text(contents)), contents);
  FolderContents unknown;
  unknown.trouble = "no answer";
  EXPECT_EQ(contents_from_text(to_text(unknown)), unknown);
  for (const char* text : {"", "{", "[]", R"({"format":2})", R"({"format":1,"trouble":"","entries":[[7]]})"}) {
    EXPECT_EQ(contents_from_text(text), std::nullopt) << text;
  }
}

TEST_F(CheckpointFiles, ANameThatIsNoTextIsTheSameOneWhenItIsReadBack) {
  write("caf\xe9.pt", "a");
  write("caf\xea.pt", "b");
  const auto noted = contents_from_text(to_text(look()));
  ASSERT_TRUE(noted);
  EXPECT_EQ(compare(1, *noted, look()), std::nullopt);
  write("caf\xea.pt", "changed");
  const auto seen = compare(1, *noted, look());
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->fresh, 1U);
}

/// A zip archive, as torch.save writes it, and one that was cut off.
const std::string kWhole =
    std::string("PK\3\4", 4) + std::string(60, 'w') + std::string("PK\5\6", 4) + std::string(18, '\0');
const std::string kTorn = kWhole.substr(0, 50);

class TornSaves : public CheckpointFiles {
 protected:
  /// The newest entry that is new, and how many are, without those that only saves that were cut off have changed.
  template <class Change>
  std::string whole_after(Change change) {
    const auto before = look();
    change();
    const auto seen = compare(1, before, look_for_whole_saves(folder_.path(), before));
    return seen ? seen->newest + " " + std::to_string(seen->fresh) : "";
  }
};

TEST_F(TornSaves, AnOlderWholeOneCountsBesideANewerThatWasCutOff) {
  EXPECT_EQ(whole_after([&] { write("run/checkpoint-100/model.pt", kTorn); }), "");
  EXPECT_EQ(whole_after([&] {
              write("run/checkpoint-200/model.pt", kWhole);
              write("run/checkpoint-300/model.pt", kTorn);
            }),
            "run 1");
  EXPECT_EQ(whole_after([&] { write("run/checkpoint-400/model.pt", kTorn); }), "") << "those before are not new";
  EXPECT_EQ(whole_after([&] {
              write("logs/v0/checkpoints/epoch=1-step=100.ckpt", kWhole);
              write("logs/v0/checkpoints/epoch=2-step=200.ckpt", kTorn);
            }),
            "logs 1");
}

TEST_F(TornSaves, AnotherFileNeitherHidesASaveNorStandsForOne) {
  EXPECT_EQ(whole_after([&] {
              write("run/step-100.pt", kWhole);
              write("run/cache.npz", kTorn);
            }),
            "run 1");
  EXPECT_EQ(whole_after([&] {
              write("run/step-200.pt", kTorn);
              write("run/config.yaml", "lr: 1");
            }),
            "");
  EXPECT_EQ(whole_after([&] {
              write("last/model.pt", kWhole);
              write("last/optimizer.pt", kTorn);
            }),
            "")
      << "without a step, all of a folder is one save";
}

TEST_F(TornSaves, PartsAtTheTopAreOneSave) {
  EXPECT_EQ(whole_after([&] {
              write("model-00001-of-00003.safetensors", "");
              write("model-00002-of-00003.gguf", "x");
            }),
            "");
  EXPECT_EQ(whole_after([&] {
              write("model-00001-of-00003.gguf", "x");
              write("model-00003-of-00003.gguf", "x");
            }),
            "model-00003-of-00003.gguf 2");
}

TEST_F(TornSaves, ADistributedCheckpointNeedsItsMetadata) {
  EXPECT_EQ(whole_after([&] { write("dcp/__0_0.distcp", "x"); }), "");
  write("dcp/.metadata", "x");
  EXPECT_EQ(whole_after([&] { write("dcp/__0_0.distcp", "xx"); }), "dcp 1");
}

TEST_F(TornSaves, OfWhatAnEarlierMusterHasNotedAllSavesOfAChangedEntryAreJudged) {
  write("run/checkpoint-100/model.pt", kWhole);
  auto before = look();
  before.saves.reset();
  write("run/checkpoint-200/model.pt", kTorn);
  const auto noted = contents_from_text(to_text(before));
  ASSERT_TRUE(noted);
  EXPECT_EQ(*noted, before);
  EXPECT_TRUE(compare(1, *noted, look_for_whole_saves(folder_.path(), *noted)));
}

TEST_F(CheckpointFiles, AFolderOfEndlessFilesIsNotReadForEver) {
  for (std::size_t i = 0; i <= kMostFiles; ++i) {
    ASSERT_EQ(::mknod((folder_.path() / ("f" + std::to_string(i))).c_str(), S_IFREG | 0600, 0), 0);
  }
  EXPECT_THAT(look().trouble, ::testing::HasSubstr("more than 20000 files"));
}

}  // namespace
}  // namespace jobs::testing
