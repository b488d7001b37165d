// Goal: a split reads as one sequence of records, and a file that is not the one of data.json is refused.
#include "data/format/dataset.h"

#include <gmock/gmock.h>

#include "tests/data/format/samples.h"
#include "tests/temporary_folder.h"

namespace data::format {
namespace {

using ::testing::HasSubstr;

FileInfo write_records(const std::filesystem::path& path, const std::vector<Tokens>& records) {
  Writer writer(path, Kind::kTokens, 300, kTokenizer);
  for (const auto& record : records) writer.add({record});
  return writer.finish();
}

class DatasetOfFiles : public ::testing::Test {
 protected:
  DatasetOfFiles() {
    description_ = describe_tokens({write_records(path_of(0), {}), write_records(path_of(1), {{1, 2}, {3}}),
                                    write_records(path_of(2), {}), write_records(path_of(3), {{4, 5, 6}})});
    description_.splits["validation"].files = {write_records(folder_ / file_name("validation", 0), {})};
    write_description(folder_.path(), description_);
  }
  std::filesystem::path path_of(std::uint64_t part) const { return folder_ / file_name("train", part); }
  std::string error_of_opening() const {
    return error_of([&] { Dataset::open(folder_.path(), "train"); });
  }

  const test::TemporaryFolder folder_{test::memory_folder()};
  Description description_;
};

TEST_F(DatasetOfFiles, IsOneSequenceOfRecords) {
  auto opened = Dataset::open(folder_.path(), "train");
  const auto first = opened.ids(0, 0);
  const Dataset data = std::move(opened);
  EXPECT_EQ(to_tokens(first), (Tokens{1, 2}));
  EXPECT_EQ(data.records(), 3);
  EXPECT_EQ(to_tokens(data.ids(1, 0)), Tokens{3});
  EXPECT_EQ(to_tokens(data.ids(2, 0)), (Tokens{4, 5, 6}));
  EXPECT_EQ(data.length(2), 3);
  EXPECT_EQ(data.label(2), -1);
  EXPECT_EQ(data.description().fingerprint, description_.fingerprint);
  EXPECT_THAT(error_of([&] { data.ids(3, 0); }), HasSubstr("no record 3 of 3"));
  EXPECT_THAT(error_of([&] { data.ids(-1, 0); }), HasSubstr("no record -1 of 3"));
  EXPECT_EQ(Dataset::open(folder_.path(), "validation").records(), 0);
}

TEST_F(DatasetOfFiles, AnotherSplitIsRefusedWithThoseThereAre) {
  EXPECT_THAT(error_of([&] { Dataset::open(folder_.path(), "test"); }),
              HasSubstr("has no split \"test\"; it has train, validation"));
}

TEST_F(DatasetOfFiles, AFileThatIsNotTheOneOfTheDescriptionIsRefused) {
  write_records(path_of(3), {{4, 5, 7}});
  EXPECT_THAT(error_of_opening(),
              HasSubstr("train-00003.mdat: it is another file than the one that data.json describes"));
  write_records(path_of(3), {{4, 5, 6}, {}});
  EXPECT_THAT(error_of_opening(), HasSubstr("its records are 2, and data.json says 1"));
  write_labelled(path_of(3), {1});
  EXPECT_THAT(error_of_opening(), HasSubstr("it holds labelled, and data.json says tokens"));
  write_tokens(path_of(3), 301);
  EXPECT_THAT(error_of_opening(), HasSubstr("its vocabulary is 301, and data.json says 300"));
  Writer(path_of(3), Kind::kTokens, 300, base::sha256("another")).finish();
  EXPECT_THAT(error_of_opening(), HasSubstr("it was made with the tokenizer " + base::hex(base::sha256("another"))));
  std::filesystem::remove(path_of(3));
  EXPECT_THAT(error_of_opening(), HasSubstr("train-00003.mdat: No such file"));
  // The other split needs none of that.
  EXPECT_EQ(Dataset::open(folder_.path(), "validation").records(), 0);
}

TEST_F(DatasetOfFiles, SumsThatTheFilesContradictAreRefused) {
  const auto text = description_.text;
  for (const auto& [what, by, error] : std::vector<std::array<std::string, 3>>{
           {"\"elements\": 6", "\"elements\": 7", "splits.train.elements is 7, and the files have 6"},
           {"\"longest\": 3", "\"longest\": 2", "splits.train.longest is 2, and the files have 3"},
           {"\"records\": 3", "\"records\": 4", "splits.train.records is 4, and the files have 3"}}) {
    auto changed = text;
    ASSERT_NE(changed.find(what), std::string::npos) << what;
    changed.replace(changed.find(what), what.size(), by);
    test::write_file(folder_ / "data.json", changed);
    EXPECT_THAT(error_of_opening(), HasSubstr(error));
  }
}

TEST_F(DatasetOfFiles, RanksVerifyEachBlockOnce) {
  // Four blocks, one a file. The damage is in the last one, which is rank 1's of 2, and rank 0's of 3.
  auto bytes = test::read_file(path_of(3));
  bytes[4096] = 9;
  std::filesystem::remove(path_of(3));
  test::write_file(path_of(3), bytes);
  const auto data = Dataset::open(folder_.path(), "train");
  for (int world_size = 1; world_size <= 6; ++world_size) {
    int found = 0;
    for (int rank = 0; rank < world_size; ++rank) {
      const auto error = error_of([&] { data.verify(rank, world_size); });
      EXPECT_EQ(error != "no error", rank == 3 % world_size) << rank << " of " << world_size;
      found += error.find("train-00003.mdat: block 0 (bytes 4096 to 4119)") != std::string::npos ? 1 : 0;
    }
    EXPECT_EQ(found, 1) << world_size;
  }
  EXPECT_THAT(error_of([&] { data.verify(2, 2); }), HasSubstr("rank 2 of 2"));
}

TEST(DatasetOfLabels, ALabelWithoutANameIsRefusedByRecord) {
  const test::TemporaryFolder folder;
  auto description = describe_tokens({write_labelled(folder / file_name("train", 0), {0, 2, 1})});
  description.kind = Kind::kLabelled;
  description.labels = {"a", "b"};
  write_description(folder.path(), description);
  EXPECT_THAT(error_of([&] { Dataset::open(folder.path(), "train"); }),
              HasSubstr("record 1 has the label 2, and data.json names 2 labels"));
  description.labels.push_back("c");
  write_description(folder.path(), description);
  EXPECT_EQ(Dataset::open(folder.path(), "train").label(1), 2);
}

}  // namespace
}  // namespace data::format
