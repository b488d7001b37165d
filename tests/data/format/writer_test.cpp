// Goal: what a writer is given comes back, and a writer that dies at any point leaves nothing that a reader takes or
// that stands in the way of the next writer.
#include "data/format/writer.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <memory>

#include "base/checksum.h"
#include "tests/data/format/samples.h"
#include "tests/temporary_folder.h"

namespace data::format {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<std::string> files_in(const test::TemporaryFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) names.push_back(entry.path().filename());
  return names;
}

TEST(Writer, TokensComeBackInTwoBytesAndInFour) {
  for (const std::uint64_t vocabulary :
       {std::uint64_t{300}, std::uint64_t{65'536}, std::uint64_t{65'537}, kMostVocabulary}) {
    const test::TemporaryFolder folder;
    const auto path = folder / "train-00000.mdat";
    const auto last = static_cast<std::uint32_t>(vocabulary - 1);
    Writer writer(path, Kind::kTokens, vocabulary, kTokenizer);
    writer.add({Tokens{0, last, 3}});
    writer.add({Tokens{}});
    writer.add({Tokens{last}});
    const auto told = writer.finish();

    const auto file = File::open(path);
    file.verify();
    EXPECT_EQ(file.info(), told);
    EXPECT_EQ(told, (FileInfo{"train-00000.mdat", std::filesystem::file_size(path), 3, 4, 3, told.checksum}));
    EXPECT_EQ(file.vocabulary(), static_cast<std::int64_t>(vocabulary));
    EXPECT_EQ(file.tokenizer(), kTokenizer);
    EXPECT_EQ(file.ids(0, 0).wide, vocabulary > 65'536);
    EXPECT_EQ(to_tokens(file.ids(0, 0)), (Tokens{0, last, 3}));
    EXPECT_EQ(to_tokens(file.ids(1, 0)), Tokens{});
    EXPECT_EQ(to_tokens(file.ids(2, 0)), Tokens{last});
    EXPECT_EQ(file.length(0), 3);
    EXPECT_EQ(file.label(0), -1);
  }
}

TEST(Writer, PairsComeBackFieldByField) {
  const test::TemporaryFolder folder;
  Writer writer(folder / "f", Kind::kPairs, 300, kTokenizer);
  writer.add({Tokens{1, 2}, Tokens{3}});
  writer.add({Tokens{}, Tokens{4, 5, 6}});
  EXPECT_EQ(writer.finish().longest, 3);
  const auto file = File::open(folder / "f");
  EXPECT_EQ(file.fields(), 2);
  EXPECT_EQ(to_tokens(file.ids(0, 0)), (Tokens{1, 2}));
  EXPECT_EQ(to_tokens(file.ids(0, 1)), Tokens{3});
  EXPECT_EQ(to_tokens(file.ids(1, 0)), Tokens{});
  EXPECT_EQ(to_tokens(file.ids(1, 1)), (Tokens{4, 5, 6}));
  EXPECT_THAT(error_of([&] { file.ids(0, 2); }), HasSubstr("no field 2 of 2"));
  EXPECT_THAT(error_of([&] { file.ids(2, 0); }), HasSubstr("no record 2 of 2"));
  EXPECT_THAT(error_of([&] { file.image(0); }), HasSubstr("holds tokens, not images"));
}

TEST(Writer, LabelsAndImagesComeBack) {
  const test::TemporaryFolder folder;
  write_labelled(folder / "labelled", {2, 0, 1});
  const auto labelled = File::open(folder / "labelled");
  EXPECT_EQ(labelled.label(0), 2);
  EXPECT_EQ(labelled.label(2), 1);

  Writer writer(folder / "images", Kind::kImages, 0, {});
  const auto first = pixels_of(2, 5, 10), second = pixels_of(1, 1, 200);
  writer.add(Image{first, 2, 5}, 4);
  writer.add(Image{second, 1, 1});
  EXPECT_EQ(writer.finish().longest, 30);
  const auto images = File::open(folder / "images");
  images.verify();
  const auto image = images.image(0);
  EXPECT_EQ(std::vector<std::uint8_t>(image.rgb.begin(), image.rgb.end()), first);
  EXPECT_EQ(image.height, 2);
  EXPECT_EQ(image.width, 5);
  EXPECT_EQ(images.label(0), 4);
  EXPECT_EQ(images.image(1).rgb[2], 202);
  EXPECT_EQ(images.label(1), -1);
  EXPECT_THAT(error_of([&] { images.ids(0, 0); }), HasSubstr("holds images, not tokens"));
}

TEST(Writer, APartWithoutRecordsIsAFile) {
  const test::TemporaryFolder folder;
  Writer writer(folder / "f", Kind::kLabelled, 300, kTokenizer);
  EXPECT_EQ(writer.finish().records, 0);
  const auto file = File::open(folder / "f");
  file.verify();
  EXPECT_EQ(file.records(), 0);
}

TEST(Writer, TheBytesAreThoseOfTheFormat) {
  const test::TemporaryFolder folder;
  const auto info = write_labelled(folder / "f", {1, 0, 3});
  const auto bytes = test::read_file(folder / "f");
  const auto number = [&](std::size_t at, std::size_t width) {
    std::uint64_t out = 0;
    std::memcpy(&out, bytes.data() + at, width);
    return out;
  };
  EXPECT_EQ(bytes.substr(0, 8), "MUSTDATA");
  // version, kind, bytes an element, fields, records, elements, vocabulary
  EXPECT_EQ(number(8, 4), 1u);
  EXPECT_EQ(number(12, 4), 3u);
  EXPECT_EQ(number(16, 4), 2u);
  EXPECT_EQ(number(20, 4), 1u);
  EXPECT_EQ(number(24, 8), 3u);
  EXPECT_EQ(number(32, 8), 6u);
  EXPECT_EQ(number(40, 8), 300u);
  // offsets of elements, index, labels and checksums, then the file's bytes
  EXPECT_EQ(number(48, 8), 4096u);
  EXPECT_EQ(number(56, 8), 4112u);
  EXPECT_EQ(number(64, 8), 4144u);
  EXPECT_EQ(number(72, 8), 4160u);
  EXPECT_EQ(number(80, 8), 4164u);
  EXPECT_EQ(bytes.size(), 4164u);
  EXPECT_EQ(bytes.substr(88, 32), std::string(kTokenizer.begin(), kTokenizer.end()));
  EXPECT_EQ(number(120, 4), 16u << 20);
  EXPECT_EQ(number(124, 4), base::crc32c(bytes.substr(0, 124)));
  EXPECT_EQ(bytes.substr(128, 4096 - 128), std::string(4096 - 128, '\0'));
  // elements 5 6 5 6 5 6, a gap, the index 0 2 4 6, the labels 1 0 3, a gap, one checksum
  EXPECT_EQ(number(4096 + 2, 2), 6u);
  EXPECT_EQ(number(4108, 4), 0u);
  EXPECT_EQ(number(4112 + 16, 8), 4u);
  EXPECT_EQ(number(4144 + 8, 4), 3u);
  EXPECT_EQ(number(4160, 4), base::crc32c(bytes.substr(4096, 64)));
  EXPECT_EQ(info.checksum, base::crc32c(bytes.substr(0, 124) + bytes.substr(4160)));
}

TEST(Writer, RefusesWhatNoReaderWouldTake) {
  const test::TemporaryFolder folder;
  Writer tokens(folder / "tokens", Kind::kTokens, 300, kTokenizer);
  tokens.add({Tokens{1}});
  EXPECT_THAT(error_of([&] {
                tokens.add({Tokens{1, 300}});
              }),
              HasSubstr("record 1: token 300 is beyond the vocabulary of 300"));
  EXPECT_THAT(error_of([&] { tokens.add({Tokens{1}, Tokens{2}}); }), HasSubstr("record 1: it has 2 fields, not 1"));
  EXPECT_THAT(error_of([&] { tokens.add({Tokens{1}}, 0); }), HasSubstr("a record of tokens has the label 0"));
  EXPECT_THAT(error_of([&] { tokens.add(Image{}); }), HasSubstr("it is an image, and the file holds tokens"));
  tokens.finish();
  EXPECT_EQ(File::open(folder / "tokens").records(), 1);
  EXPECT_THAT(error_of([&] { tokens.add({Tokens{1}}); }), HasSubstr("is finished"));

  Writer labelled(folder / "labelled", Kind::kLabelled, 300, kTokenizer);
  EXPECT_THAT(error_of([&] { labelled.add({Tokens{1}}); }), HasSubstr("a record of labelled has the label -1"));
  Writer images(folder / "images", Kind::kImages, 0, {});
  const auto rgb = pixels_of(2, 2, 0);
  EXPECT_THAT(error_of([&] { images.add(Image{rgb, 2, 3}); }), HasSubstr("an image of 2 x 3 pixels with 12 bytes"));
  EXPECT_THAT(error_of([&] { images.add(Image{rgb, 2, -2}); }), HasSubstr("an image of 2 x -2 pixels"));
  EXPECT_THAT(error_of([&] { images.add(Image{rgb, 2, 2}, -2); }), HasSubstr("the label -2"));
  EXPECT_THAT(error_of([&] { images.add({Tokens{1}}); }), HasSubstr("the file holds images"));
  EXPECT_THAT(error_of([&] { Writer(folder / "f", Kind::kTokens, 0, kTokenizer); }),
              HasSubstr("vocabulary of tokens is 0"));
  EXPECT_THAT(error_of([&] { Writer(folder / "f", Kind::kImages, 0, kTokenizer); }),
              HasSubstr("images have no tokenizer"));
  EXPECT_THAT(error_of([&] { Writer(folder / "none" / "f", Kind::kTokens, 9, kTokenizer); }),
              HasSubstr("none/f.part: No such file"));
}

TEST(Writer, ADiskThatTakesNoMoreIsNamedAndNothingIsLeft) {
  const test::TemporaryFolder folder;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit little{std::size_t{2} << 20, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
  const auto error = error_of([&] {
    Writer writer(folder / "f", Kind::kTokens, 300, kTokenizer);
    for (int i = 0; i < 4; ++i) writer.add({Tokens(std::size_t{1} << 20, 7)});
  });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(error, AllOf(HasSubstr("cannot write "), HasSubstr("f.part: File too large")));
  EXPECT_EQ(files_in(folder), std::vector<std::string>{});
}

TEST(Writer, ThatGivesUpLeavesNothing) {
  const test::TemporaryFolder folder;
  {
    Writer writer(folder / "f", Kind::kTokens, 300, kTokenizer);
    writer.add({Tokens{1, 2}});
    EXPECT_EQ(files_in(folder), std::vector<std::string>{"f.part"});
  }
  EXPECT_EQ(files_in(folder), std::vector<std::string>{});
}

/// Runs `work` in another process, which must end by SIGKILL.
void killed(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    work();
    std::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

TEST(Writer, KilledInTheMiddleIsReadByNobodyAndDoneAgain) {
  const test::TemporaryFolder folder;
  const auto path = folder / "train-00000.mdat";
  // More than the writer holds back, so that bytes are on disk.
  const Tokens many(std::size_t{1} << 20, 7);
  for (const int records : {0, 1, 3}) {
    killed([&] {
      auto* writer = new Writer(path, Kind::kTokens, 300, kTokenizer);
      for (int i = 0; i < records; ++i) writer->add({many});
    });
    EXPECT_EQ(files_in(folder), std::vector<std::string>{"train-00000.mdat.part"});
    EXPECT_GE(std::filesystem::file_size(folder / "train-00000.mdat.part"), records > 1 ? many.size() : 4096u);
    EXPECT_EQ(finished_file(path), std::nullopt);
    EXPECT_THAT(error_of([&] { File::open(folder / "train-00000.mdat.part"); }), HasSubstr("its writer was stopped"));
  }
  test::write_file(folder / "train-00000.mdat.part", std::string(10'000, 'x'));  // whatever is there
  write_tokens(path);
  EXPECT_EQ(files_in(folder), std::vector<std::string>{"train-00000.mdat"});
  write_tokens(folder / "never-killed");
  EXPECT_EQ(test::read_file(path), test::read_file(folder / "never-killed"));
}

TEST(Writer, KilledAfterItsPartsLetsTheNextOneGoOn) {
  const test::TemporaryFolder folder;
  killed([&] {
    write_tokens(folder / file_name("train", 0));
    write_tokens(folder / file_name("train", 1), 400);
    auto* writer = new Writer(folder / file_name("train", 2), Kind::kTokens, 300, kTokenizer);
    writer->add({Tokens{1}});
  });
  EXPECT_EQ(finished_file(folder / file_name("train", 0))->records, 3);
  EXPECT_EQ(finished_file(folder / file_name("train", 1)), File::open(folder / file_name("train", 1)).info());
  EXPECT_EQ(finished_file(folder / file_name("train", 2)), std::nullopt);
  // A part that was finished and has been damaged is told, so that it is made again.
  auto bytes = test::read_file(folder / file_name("train", 0));
  bytes[4096] = 9;
  test::write_file(folder / file_name("train", 0), bytes);
  EXPECT_THAT(error_of([&] { finished_file(folder / file_name("train", 0)); }), HasSubstr("block 0 (bytes 4096"));
  std::filesystem::resize_file(folder / file_name("train", 0), 4100);
  EXPECT_THAT(error_of([&] { finished_file(folder / file_name("train", 0)); }), HasSubstr("truncated"));
  write_tokens(folder / file_name("train", 0));
  EXPECT_EQ(finished_file(folder / file_name("train", 0))->records, 3);
}

TEST(Writer, TwoNeverWriteOneFile) {
  const test::TemporaryFolder folder;
  auto first = std::make_unique<Writer>(folder / "f", Kind::kTokens, 300, kTokenizer);
  first->add({Tokens{1, 2, 3}});
  EXPECT_THAT(error_of([&] { write_tokens(folder / "f"); }), HasSubstr("f.part: another process writes it"));
  first->finish();
  EXPECT_EQ(to_tokens(File::open(folder / "f").ids(0, 0)), (Tokens{1, 2, 3}));
  // Who has mapped the old file keeps it.
  const auto old = File::open(folder / "f");
  write_tokens(folder / "f");
  EXPECT_EQ(to_tokens(old.ids(0, 0)), (Tokens{1, 2, 3}));
  EXPECT_EQ(to_tokens(File::open(folder / "f").ids(0, 0)), (Tokens{1, 2, 299}));
}

}  // namespace
}  // namespace data::format
