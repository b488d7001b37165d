// Goal: a program's own words are read from where it left them, and are fit for a sentence.
// Method: torchelastic's file as torch writes it, hostile texts, and files in a temporary folder.
#include "agent/watch/last_words.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/temporary_folder.h"

namespace agent::watch {
namespace {

TEST(ErrorFile, BothShapesOfTorchelasticAreRead) {
  EXPECT_EQ(words_of_error_file(R"({"message": {"message": "ValueError: bad batch", "extraInfo": {"py_callstack":
            "Traceback (most recent call last):\n", "timestamp": "1763937011"}}})"),
            "ValueError: bad batch");
  EXPECT_EQ(words_of_error_file(R"({"message": {"message": "RuntimeError: CUDA error: out of memory\nCUDA kernel",
            "errorCode": 1}})"),
            "RuntimeError: CUDA error: out of memory");
  EXPECT_EQ(words_of_error_file(R"({"message": "it is over"})"), "it is over");
}

TEST(ErrorFile, AnythingElseSaysNothing) {
  for (const char* text : {"", "{", "[]", "7", R"({"message":7})", R"({"message":{"text":"x"}})", R"({"error":"x"})"}) {
    EXPECT_EQ(words_of_error_file(text), "") << text;
  }
}

TEST(LastWords, AreOneCleanLineOfBoundedLength) {
  EXPECT_EQ(fit_for_a_sentence("a\tb\r\n  c\x01\x7f"), "a b c");
  EXPECT_EQ(fit_for_a_sentence("caf\xc3\xa9 \xff\xc3"), "caf\xc3\xa9 ??");
  EXPECT_EQ(fit_for_a_sentence("\xed\xa0\x80"), "???") << "half a character of UTF-16";
  const auto cut = fit_for_a_sentence(std::string(kMostWords - 4, 'x') + "\xc3\xa9\xc3\xa9\xc3\xa9");
  EXPECT_LE(cut.size(), kMostWords);
  EXPECT_TRUE(cut.ends_with("x...")) << cut;
}

TEST(LastWords, OnlyAnEndOfItsOwnFaultHasThem) {
  for (const spec::ExitStatus end :
       {spec::ExitStatus{1, 0}, {3, 0}, {97, 0}, {93, 0}, {137, 0}, {0, SIGABRT}, {0, SIGSEGV}}) {
    EXPECT_TRUE(may_have_words(end)) << end.code << " " << end.signal;
  }
  for (const spec::ExitStatus end :
       {spec::ExitStatus{0, 0}, {99, 0}, {94, 0}, {0, SIGKILL}, {0, SIGTERM}, {0, SIGINT}}) {
    EXPECT_FALSE(may_have_words(end)) << end.code << " " << end.signal;
  }
}

TEST(LastWords, TheErrorFileComesFirstThenTheEndOfTheLog) {
  const test::TemporaryFolder folder;
  const auto files = rank_files(folder.path(), 3);
  EXPECT_EQ(files.log, folder.path() / "rank-3.log");
  EXPECT_EQ(read_last_words(files), "");
  std::ofstream(files.log) << "ValueError: in the log, long before\n"
                           << std::string(kMostRead, ' ') << "\nRuntimeError: in the log\n";
  EXPECT_EQ(read_last_words(files), "RuntimeError: in the log");
  std::ofstream(files.error) << R"({"message": "in the file"})";
  EXPECT_EQ(read_last_words(files), "in the file");
  EXPECT_EQ(file_variables(files).at("TORCHELASTIC_ERROR_FILE"), files.error.string());
  EXPECT_EQ(file_variables(files).at("MUSTER_STOP"), files.stop.string());
}

TEST(LastWords, AnErrorFileThatOnlyTellsOfALostConnectionGivesWayToTheLog) {
  const test::TemporaryFolder folder;
  const auto files = rank_files(folder.path(), 0);
  std::ofstream(files.error)
      << R"({"message": {"message": "RuntimeError: Connection closed by peer [10.0.0.7]:4516"}})";
  EXPECT_EQ(read_last_words(files), "RuntimeError: Connection closed by peer [10.0.0.7]:4516");
  std::ofstream(files.log) << "[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: bad batch\n";
  EXPECT_EQ(read_last_words(files), "ValueError: bad batch");
}

/// The text of an error file as torchelastic's error handler writes it.
std::string error_file(const std::string& message, int time) {
  return R"({"message": {"message": ")" + message + R"(", "extraInfo": {"py_callstack": "Traceback", "timestamp": ")" +
         std::to_string(time) + "\"}}}";
}

TEST(LastWords, TheErrorFilesOfAllWorkersOfALauncherAreRead) {
  const test::TemporaryFolder folder;
  const auto files = rank_files(folder.path(), 0);
  const auto workers = folder.path() / "torchelastic_x/none_y/attempt_0";
  const auto write = [&](int worker, const std::string& text) {
    std::filesystem::create_directories(workers / std::to_string(worker));
    std::ofstream(workers / std::to_string(worker) / "error.json") << text;
  };
  const std::string lost = "RuntimeError: Connection closed by peer [10.0.0.7]:4516";
  const auto block = [&](const std::string& traceback, const std::string& code = "1") {
    std::ofstream(files.log)
        << "Failures:\n  <NO_OTHER_FAILURES>\n----\nRoot Cause (first observed failure):\n[0]:\n  time      : "
           "2026-11-28_07:00:10\n  rank      : 0 (local_rank: 0)\n  exitcode  : "
        << code << " (pid: 7)\n  error_file: " << (workers / "0/error.json").string() << "\n  traceback : " << traceback
        << "\n====\n";
  };
  std::ofstream(files.error) << error_file(lost, 100);
  write(0, error_file(lost, 100));
  block("Traceback (most recent call last):\n  " + lost);
  EXPECT_EQ(read_last_words(files), lost) << "nobody tells more";
  write(3, error_file("KeyError: 'x'", 102));
  write(2, error_file("ValueError: bad batch", 101));
  write(1, "{");
  std::filesystem::create_directories(workers / "5");
  ASSERT_EQ(::mkfifo((workers / "5/error.json").c_str(), 0600), 0);
  EXPECT_EQ(read_last_words(files), "ValueError: bad batch") << "the earliest that is no survivor's";
  EXPECT_EQ(read_own_failure(files), "ValueError: bad batch");
  std::filesystem::remove(files.error);
  block("To enable traceback see: https://pytorch.org");
  EXPECT_EQ(read_last_words(files), "ValueError: bad batch") << "it says more than that a worker exited";
  block("Signal 9 (SIGKILL) received by PID 7", "-9");
  EXPECT_EQ(read_last_words(files), "rank 0 of the launcher was killed by SIGKILL") << "the others followed";
  std::ofstream(files.error) << error_file("OSError: of the launcher itself", 100);
  EXPECT_EQ(read_last_words(files), "OSError: of the launcher itself");
}

TEST(LastWords, OfARankThatWasAskedToLeaveOnlyItsOwnFailureCounts) {
  for (const spec::ExitStatus end : {spec::ExitStatus{1, 0}, {0, SIGTERM}, {0, SIGKILL}}) {
    EXPECT_TRUE(may_have_failed(end)) << end.code << " " << end.signal;
  }
  for (const spec::ExitStatus end : {spec::ExitStatus{0, 0}, {99, 0}, {94, 0}}) {
    EXPECT_FALSE(may_have_failed(end)) << end.code;
  }
  const test::TemporaryFolder folder;
  const auto files = rank_files(folder.path(), 0);
  std::ofstream(files.log) << "Traceback (most recent call last):\nConnectionResetError: [Errno 104]\n";
  EXPECT_EQ(read_own_failure(files), "") << "it lost its connection to the rank that failed";
  std::ofstream(files.log) << "Traceback (most recent call last):\nValueError: bad batch\n";
  EXPECT_EQ(read_own_failure(files), "ValueError: bad batch");
}

TEST(LastWords, WhatIsNoFileIsNotWaitedFor) {
  const test::TemporaryFolder folder;
  const auto files = rank_files(folder.path(), 0);
  ASSERT_EQ(::mkfifo(files.error.c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo(files.log.c_str(), 0600), 0);
  EXPECT_EQ(read_last_words(files), "");
}

}  // namespace
}  // namespace agent::watch
