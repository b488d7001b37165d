// Goal: of each kind of text the frames of the main thread are found, the outermost first.
#include "controller/stacks/compare.h"

#include <gmock/gmock.h>

#include "agent/protocol/files.h"

namespace stacks {
namespace {

using testing::ElementsAre;

std::string section(std::string_view by, const std::string& lines) {
  return agent::protocol::section_head(41, "python3 train.py == x", by) + lines;
}

const std::string kKernel =
    section(agent::protocol::kByKernel,
            "thread 41 python3: sleeps, in futex, wait channel futex_wait_queue, 1.20 s of CPU\n"
            "thread 42 python3: runs, 0.10 s of CPU\n");

TEST(Frames, OfFaulthandlerAreThoseOfTheLastThread) {
  const auto place = place_of(section(agent::protocol::kByFaulthandler,
                                      "Current thread 0x00007f01 (most recent call first):\n"
                                      "  File \"/usr/lib/python3.11/threading.py\", line 327 in wait\n"
                                      "\n"
                                      "Thread 0x00007f02 (most recent call first):\n"
                                      "  File \"/home/a b/in \"x\" line.py\", line 12 in all_reduce\n"
                                      "  File \"/home/a/train.py\", line 41 in <module>\n") +
                              kKernel);
  EXPECT_EQ(place.kind, Kind::kPython);
  EXPECT_THAT(place.frames, ElementsAre("<module> (train.py:41)", "all_reduce (in \"x\" line.py:12)"));
}

TEST(Frames, OfPySpyAreThoseOfTheMainThread) {
  const auto place = place_of(section(agent::protocol::kByPySpy,
                                      "Process 41: python3 train.py\n"
                                      "Python v3.11.2 (/usr/bin/python3.11)\n"
                                      "\n"
                                      "Thread 42 (idle): \"pin\"\n"
                                      "    wait (threading.py:320)\n"
                                      "Thread 41 (active): \"MainThread\"\n"
                                      "    backward (torch/autograd/graph.py:769)\n"
                                      "    <module> (train.py:41)\n"));
  EXPECT_EQ(place.kind, Kind::kPython);
  EXPECT_THAT(place.frames, ElementsAre("<module> (train.py:41)", "backward (torch/autograd/graph.py:769)"));
}

TEST(Frames, OfPySpyWithoutNamesAreThoseOfTheThreadWithTheProcesssNumber) {
  const auto place = place_of(section(agent::protocol::kByPySpy,
                                      "Thread 42 (idle)\n"
                                      "    wait (threading.py:320)\n"
                                      "Thread 41 (idle)\n"
                                      "    <module> (train.py:41)\n"));
  EXPECT_THAT(place.frames, ElementsAre("<module> (train.py:41)"));
}

TEST(Frames, OfMusterWorkerAreThoseOfItsFirstThread) {
  const auto place = place_of(section(agent::protocol::kByWorker,
                                      "thread 41 muster-worker\n"
                                      "  __poll in libc.so.6\n"
                                      "  fsdp::Communicator::wait()\n"
                                      "thread 42 other\n"
                                      "  other()\n"));
  EXPECT_EQ(place.kind, Kind::kNative);
  EXPECT_THAT(place.frames, ElementsAre("fsdp::Communicator::wait()", "__poll in libc.so.6"));
}

TEST(Frames, OfTheKernelHaveNoTimesAndNoDescriptors) {
  EXPECT_EQ(place_of(kKernel), (Place{Kind::kKernel, {"sleeps, in futex, wait channel futex_wait_queue"}}));
  const auto reads =
      section(agent::protocol::kByKernel,
              "thread 41 a: b: sleeps, in read of 7 (socket:[99]), wait channel sk_wait_data, 1.20 s of CPU\n");
  EXPECT_THAT(place_of(reads).frames, ElementsAre("b: sleeps, in read, wait channel sk_wait_data"));
}

// torchrun has no frames, and its worker has.
TEST(Frames, AreThoseOfTheFirstProcessThatHasAny) {
  const auto worker = section(agent::protocol::kByFaulthandler,
                              "Current thread 0x00007f02 (most recent call first):\n"
                              "  File \"/a/train.py\", line 41 in <module>\n");
  EXPECT_THAT(place_of(kKernel + worker).frames, ElementsAre("<module> (train.py:41)"));
}

TEST(Frames, OfATextThatMakesNoSenseAreNone) {
  for (const std::string text :
       {"", "\n\n", "== process ", "== process 1 (a) == by nobody\nx\n", "  File \"x\", line\n"}) {
    EXPECT_TRUE(place_of(text).frames.empty()) << text;
  }
  EXPECT_TRUE(place_of(section(agent::protocol::kByFaulthandler, "  File \"a.py\", line 1 in f\n")).frames.empty());
}

}  // namespace
}  // namespace stacks
