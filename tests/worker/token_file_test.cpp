#include "data/token_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "temporary_folder.h"

namespace worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::read_file;
using testing::TemporaryFolder;
using testing::write_file;

TextSource two_documents() {
  return {"two documents", [](const DocumentSink& sink) {
            sink("ab");
            sink("\xff");
          }};
}

/// The one token file in the folder.
std::filesystem::path only_file(const TemporaryFolder& folder) {
  std::filesystem::path found;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (entry.path().extension() != ".bin") continue;
    EXPECT_TRUE(found.empty());
    found = entry.path();
  }
  return found;
}

TEST(TokenFile, HoldsBytesAndSeparatorsBehindAHeader) {
  const TemporaryFolder folder;
  const auto path = (folder / "t.bin").native();
  TokenFile::write(path, two_documents());
  const auto file = TokenFile::open(path);
  EXPECT_THAT(file.tokens(), ElementsAre('a', 'b', kSeparatorToken, 255, kSeparatorToken));
  EXPECT_EQ(file.vocabulary(), 257);
  EXPECT_EQ(file.description(), "two documents");
  const auto bytes = read_file(path);
  EXPECT_EQ(bytes.size(), 4096u + 5 * 2);
  EXPECT_EQ(bytes.substr(0, 8), "MUSTTOKN");
}

TEST(TokenFile, ARenamedTemporaryLeavesNothingBehind) {
  const TemporaryFolder folder;
  TokenFile::write((folder / "t.bin").native(), two_documents());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(TokenFile, EveryKindOfDamageIsNamed) {
  const TemporaryFolder folder;
  const auto path = folder / "t.bin";
  TokenFile::write(path.native(), two_documents());
  const auto good = read_file(path);
  const auto opened = [&](std::string bytes) {
    write_file(path, bytes);
    return message_of<std::runtime_error>([&] { TokenFile::open(path.native()); });
  };
  const auto with = [&](std::size_t at, char value) {
    auto bytes = good;
    bytes[at] = value;
    return bytes;
  };
  EXPECT_THAT(opened(""), HasSubstr("shorter than its header"));
  EXPECT_THAT(opened(with(0, 'X')), HasSubstr("no token file"));
  EXPECT_THAT(opened(with(8, 2)), HasSubstr("version is 2"));
  EXPECT_THAT(opened(with(12, 4)), HasSubstr("dtype is 4"));
  EXPECT_THAT(opened(with(24, 99)), HasSubstr("99 tokens were announced"));
  EXPECT_THAT(opened(with(31, '\x7f')), HasSubstr("tokens were announced"));
  EXPECT_THAT(opened(with(41, '\x7f')), HasSubstr("description is too long"));
  EXPECT_THAT(opened(good.substr(0, good.size() - 2)), HasSubstr("announced"));
  EXPECT_THAT(opened(with(4096, 'x')), HasSubstr("checksum"));
  EXPECT_THAT(opened(with(17, 0)), HasSubstr("beyond the vocabulary"));
  EXPECT_THAT(opened(good + "  "), HasSubstr("announced"));
}

TEST(TokenCache, IsBuiltOnceAndUsedAgain) {
  const TemporaryFolder folder;
  int reads = 0;
  const TextSource source{"counted", [&](const DocumentSink& sink) {
                            ++reads;
                            sink("text");
                          }};
  const auto first = open_or_build_tokens(source, folder.path().native());
  const auto second = open_or_build_tokens(source, folder.path().native());
  EXPECT_EQ(reads, 1);
  EXPECT_EQ(first.checksum(), second.checksum());
}

TEST(TokenCache, ADamagedFileIsBuiltAgain) {
  const TemporaryFolder folder;
  const auto before = open_or_build_tokens(two_documents(), folder.path().native()).checksum();
  const auto path = only_file(folder);
  auto bytes = read_file(path);
  bytes.back() ^= 1;
  write_file(path, bytes);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(open_or_build_tokens(two_documents(), folder.path().native()).checksum(), before);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("built again"));
}

TEST(TokenCache, TokensAreFoundByWhatTheyAre) {
  const TemporaryFolder folder;
  const TextSource other{"another", [](const DocumentSink& sink) { sink("z"); }};
  const auto cache = folder.path().native();
  const auto wanted = open_or_build_tokens(two_documents(), cache).fingerprint();
  open_or_build_tokens(other, cache);
  const auto found = find_tokens(wanted, cache);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->fingerprint(), wanted);
  EXPECT_TRUE(found->made_from(two_documents()));
  EXPECT_FALSE(found->made_from(other));
  EXPECT_FALSE(find_tokens("5 byte tokens, checksum 0", cache));
  EXPECT_FALSE(find_tokens(wanted, (folder / "no such").native()));
}

// Goal: when another node's files have the same tokens, a rank still finds the token file of its own source.
TEST(TokenCache, OfEqualTokensThoseOfTheOwnSourceAreFound) {
  const TemporaryFolder folder;
  for (int source = 0; source < 8; ++source) {
    TextSource other = two_documents();
    other.description = "source " + std::to_string(source);
    open_or_build_tokens(other, folder.path().native());
  }
  const auto wanted = open_or_build_tokens(two_documents(), folder.path().native()).fingerprint();
  for (const std::string name : {"source 0", "source 3", "source 7", "two documents"}) {
    EXPECT_EQ(find_tokens(wanted, folder.path().native(), name).value().description(), name);
  }
}

TEST(TokenCache, ADamagedFileIsPassedOverForAWholeOneOrNone) {
  const TemporaryFolder folder;
  const auto cache = folder.path().native();
  const auto wanted = open_or_build_tokens(two_documents(), cache).fingerprint();
  const auto path = only_file(folder);
  auto bytes = read_file(path);
  bytes.back() ^= 1;
  write_file(path, bytes);
  write_file(folder / "tokens-short.bin", "MUSTTOKN");
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(find_tokens(wanted, cache));
  TextSource touched = two_documents();
  touched.description = "two documents, touched";
  open_or_build_tokens(touched, cache);
  const auto found = find_tokens(wanted, cache);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("do not fit their checksum; it is passed over"));
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->made_from(touched));
}

TEST(TokenCache, SourcesDoNotShareAFile) {
  const TemporaryFolder folder;
  const TextSource other{"another", [](const DocumentSink& sink) { sink("z"); }};
  open_or_build_tokens(two_documents(), folder.path().native());
  EXPECT_THAT(open_or_build_tokens(other, folder.path().native()).tokens(), ElementsAre('z', kSeparatorToken));
}

TEST(TokenCache, ProcessesThatStartAtOnceShareOneBuild) {
  const TemporaryFolder folder;
  constexpr int kProcesses = 6;
  const TextSource source{"slow", [&](const DocumentSink& sink) {
                            std::ofstream(folder / "builds", std::ios::app) << 'x';
                            for (int i = 0; i < 2000; ++i) sink(std::string(100, static_cast<char>('a' + i % 26)));
                          }};
  for (int i = 0; i < kProcesses; ++i) {
    if (::fork() == 0) {
      try {
        const auto file = open_or_build_tokens(source, folder.path().native());
        ::_exit(file.tokens().size() == 2000 * 101 ? 0 : 1);
      } catch (...) {
        ::_exit(2);
      }
    }
  }
  for (int i = 0; i < kProcesses; ++i) {
    int status = -1;
    ::wait(&status);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(read_file(folder / "builds"), "x");
  only_file(folder);
}

/// A process that builds its own cache file and stops in the middle.
class Writer {
 public:
  Writer(const TemporaryFolder& folder, const std::string& description) {
    if (::pipe2(begun_, O_CLOEXEC) != 0 || ::pipe2(go_on_, O_CLOEXEC) != 0) std::abort();
    pid_ = ::fork();
    // Each process keeps only its own ends, so neither waits for a dead one.
    ::close(pid_ == 0 ? std::exchange(go_on_[1], -1) : std::exchange(begun_[1], -1));
    if (pid_ != 0) return;
    const TextSource source{description, [this](const DocumentSink& sink) {
                              sink("first half");
                              char byte = 0;
                              if (::write(begun_[1], "x", 1) != 1 || ::read(go_on_[0], &byte, 1) != 1) ::_exit(3);
                              sink("second half");
                            }};
    try {
      const auto file = open_or_build_tokens(source, folder.path().native());
      ::_exit(file.tokens().size() == 23 ? 0 : 1);
    } catch (...) {
      ::_exit(2);
    }
  }
  ~Writer() {
    if (pid_ > 0) end(SIGKILL);
    for (const int fd : {begun_[0], begun_[1], go_on_[0], go_on_[1]}) {
      if (fd >= 0) ::close(fd);
    }
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void wait_until_it_writes() {
    char byte = 0;
    ASSERT_EQ(::read(begun_[0], &byte, 1), 1);
  }
  int go_on() {
    EXPECT_EQ(::write(go_on_[1], "x", 1), 1);
    return end(0);
  }
  /// Sends a signal. Returns the end status as wait() gives it.
  int end(int signal) {
    int status = -1;
    ::kill(pid_, signal);
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  int begun_[2], go_on_[2];
  pid_t pid_ = -1;
};

int temporaries_in(const TemporaryFolder& folder) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    count += entry.path().native().find(".tmp.") != std::string::npos ? 1 : 0;
  }
  return count;
}

TEST(TokenCache, WhatAKilledWriterHasLeftIsRemoved) {
  for (const char* next : {"the same text", "another text"}) {
    const TemporaryFolder folder;
    Writer killed(folder, "the same text");
    killed.wait_until_it_writes();
    ASSERT_EQ(killed.end(SIGKILL), SIGKILL);
    ASSERT_EQ(temporaries_in(folder), 1);
    open_or_build_tokens({next, [](const DocumentSink& sink) { sink("text"); }}, folder.path().native());
    EXPECT_EQ(temporaries_in(folder), 0) << next;
  }
}

TEST(TokenCache, WhatALivingWriterIsWritingStays) {
  const TemporaryFolder folder;
  Writer other(folder, "another text");
  other.wait_until_it_writes();
  open_or_build_tokens(two_documents(), folder.path().native());
  EXPECT_EQ(temporaries_in(folder), 1);
  EXPECT_EQ(other.go_on(), 0);
  EXPECT_EQ(temporaries_in(folder), 0);
}

TEST(TokenCache, NamesAFolderItCannotMake) {
  const TemporaryFolder folder;
  write_file(folder / "file", "");
  const auto message =
      message_of<std::runtime_error>([&] { open_or_build_tokens(two_documents(), (folder / "file/cache").native()); });
  EXPECT_THAT(message, HasSubstr("data.cache_folder"));
}

}  // namespace
}  // namespace worker
