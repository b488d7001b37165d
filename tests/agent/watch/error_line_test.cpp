// Goal: the reason of an end holds the program's own error, whatever it was written in, and never a line that is about
// something else.
// Method: the last words of real programs, as their runtimes print them, in one table.
#include "agent/watch/last_words.h"

#include <gtest/gtest.h>

#include <string>

namespace agent::watch {
namespace {

struct Case {
  const char* what;
  const char* log;
  const char* words;
};

const Case kCases[] = {
    {"an uncaught exception of Python",
     R"(step 80 loss 2.31
Traceback (most recent call last):
  File "/home/ada/train.py", line 12, in <module>
    main()
  File "/home/ada/train.py", line 8, in main
    raise RuntimeError("the disk is on fire")
RuntimeError: the disk is on fire
)",
     "RuntimeError: the disk is on fire"},
    {"CUDA's advice after its error is left out",
     R"(Traceback (most recent call last):
  File "train.py", line 3, in <module>
    loss.backward()
    ~~~~~~~~~~~~~^^
RuntimeError: CUDA error: device-side assert triggered
CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1.
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.

)",
     "RuntimeError: CUDA error: device-side assert triggered"},
    {"of chained exceptions the last",
     R"(Traceback (most recent call last):
  File "a.py", line 2, in <module>
    {}["lr"]
KeyError: 'lr'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 4, in <module>
    raise ValueError("lr is missing") from None
ValueError: lr is missing
)",
     "ValueError: lr is missing"},
    {"a cause that is named",
     R"(Traceback (most recent call last):
  File "a.py", line 2, in <module>
OSError: [Errno 28] No space left on device

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "a.py", line 4, in <module>
my.lib.SaveFailed: cannot save step 40
)",
     "my.lib.SaveFailed: cannot save step 40"},
    {"without a message the place is told",
     R"(Traceback (most recent call last):
  File "/home/ada/train.py", line 20, in <module>
    main()
  File "/home/ada/lib/data.py", line 7, in main
    assert rows > 0
AssertionError
)",
     "AssertionError (data.py, line 7)"},
    {"a message on the next line",
     R"(Traceback (most recent call last):
  File "train.py", line 9, in <module>
RuntimeError: Error(s) in loading state_dict for Llama:
	Missing key(s) in state_dict: "head.weight".
)",
     R"(RuntimeError: Error(s) in loading state_dict for Llama: Missing key(s) in state_dict: "head.weight".)"},
    {"torch puts the rank before each line",
     R"([rank1]: Traceback (most recent call last):
[rank1]:   File "/home/ada/train.py", line 3, in <module>
[rank1]:     main()
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.
[rank1]:[W1123 22:50:11.1 ProcessGroupNCCL.cpp:1250] Warning: WARNING: process group has NOT been destroyed
)",
     "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB."},
    {"srun --label does so, too",
     "3: Traceback (most recent call last):\n3:   File \"t.py\", line 1, in <module>\n3: NameError: name 'x' is not "
     "defined\n",
     "NameError: name 'x' is not defined"},
    {"torchrun speaks of its child, which has spoken before",
     R"(Traceback (most recent call last):
  File "/home/ada/train.py", line 3, in <module>
ValueError: bad batch
E1123 22:50:12.077 4242 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 0
Traceback (most recent call last):
  File "/usr/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
)",
     "ValueError: bad batch"},
    {"and where the child was silent, torchrun's words are better than none",
     R"(Traceback (most recent call last):
  File "/usr/bin/accelerate", line 8, in <module>
subprocess.CalledProcessError: Command '['/usr/bin/python3', 'train.py']' died with <Signals.SIGSEGV: 11>.
)",
     "subprocess.CalledProcessError: Command '['/usr/bin/python3', 'train.py']' died with <Signals.SIGSEGV: 11>."},
    {"a syntax error has no traceback",
     R"(  File "/home/ada/train.py", line 3
    print("a"
         ^
SyntaxError: '(' was never closed
)",
     "SyntaxError: '(' was never closed"},
    {"an exception group",
     R"(  + Exception Group Traceback (most recent call last):
  |   File "g.py", line 1, in <module>
  |     raise ExceptionGroup("workers", [ValueError("one"), TypeError("two")])
  | ExceptionGroup: workers (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ValueError: one
    +---------------- 2 ----------------
    | TypeError: two
    +------------------------------------
)",
     "ExceptionGroup: workers (2 sub-exceptions)"},
    {"an exception group whose members have tracebacks of their own",
     R"(  + Exception Group Traceback (most recent call last):
  |   File "g.py", line 9, in <module>
  |     asyncio.run(main())
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "g.py", line 4, in load
    |     raise ValueError("shard 3")
    | ValueError: shard 3
    +------------------------------------
)",
     "ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)"},
    {"rich's boxes and colours",
     "\x1b[31m\u256d\u2500 Traceback (most recent call last) \u2500\u256e\x1b[0m\n\x1b[31m\u2502\x1b[0m train.py:3 in "
     "main\n\x1b[31m\u2570\u2500\u256f\x1b[0m\n\x1b[1;91mRuntimeError: \x1b[0mit is \x1b[1mbold\x1b[0m\n",
     "RuntimeError: it is bold"},
    {"Hydra's hint comes after",
     R"(Error executing job with overrides: ['lr=1']
Traceback (most recent call last):
  File "/home/ada/train.py", line 9, in main
    return 1 / 0
ZeroDivisionError: division by zero

Set the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.
)",
     "ZeroDivisionError: division by zero"},
    {"progress bars end in carriage returns",
     "  0%|          | 0/60 [00:00<?, ?it/s]\r  2%|1         | 1/60 [00:00<00:05, 11it/s]\rTraceback (most recent call "
     "last):\n  File \"t.py\", line 1, in <module>\nValueError: nan\n\r  2%|1         | 1/60 [00:01<00:59]\n",
     "ValueError: nan"},
    {"interpreters that crash",
     R"(Fatal Python error: Segmentation fault

Current thread 0x00007f0a (most recent call first):
  File "/home/ada/train.py", line 3 in <module>
)",
     "Fatal Python error: Segmentation fault"},
    {"C++",
     "terminate called after throwing an instance of 'std::runtime_error'\n  what():  no such tensor: head.weight\n",
     "std::runtime_error: no such tensor: head.weight"},
    {"C++ without an exception", "terminate called without an active exception\n",
     "terminate called without an active exception"},
    {"libc++", "libc++abi: terminating due to uncaught exception of type std::out_of_range: vector\n",
     "terminating due to uncaught exception of type std::out_of_range: vector"},
    {"Rust",
     "thread 'main' panicked at src/main.rs:4:5:\nindex out of bounds: the len is 3 but the index is 7\nnote: run with "
     "`RUST_BACKTRACE=1` environment variable to display a backtrace\n",
     "panicked at src/main.rs:4:5: index out of bounds: the len is 3 but the index is 7"},
    {"Rust before 1.73", "thread 'main' panicked at 'boom', src/main.rs:2:5\nnote: run with `RUST_BACKTRACE=1`\n",
     "panicked at 'boom', src/main.rs:2:5"},
    {"a result of Rust's main", "Error: Os { code: 2, kind: NotFound, message: \"No such file or directory\" }\n",
     "Error: Os { code: 2, kind: NotFound, message: \"No such file or directory\" }"},
    {"Go", "panic: runtime error: index out of range [5] with length 3\n\ngoroutine 1 [running]:\nmain.main()\n",
     "panic: runtime error: index out of range [5] with length 3"},
    {"Java", "Exception in thread \"main\" java.lang.IllegalStateException: closed\n\tat Main.main(Main.java:3)\n",
     "java.lang.IllegalStateException: closed"},
    {"Node.js",
     "/home/ada/a.js:1\nthrow new Error(\"boom\")\n^\n\nError: boom\n    at Object.<anonymous> (/home/ada/a.js:1:7)\n",
     "Error: boom"},
    {"Julia", "ERROR: LoadError: UndefVarError: x not defined\nStacktrace:\n [1] top-level scope\n",
     "LoadError: UndefVarError: x not defined"},
    {"glibc", "free(): invalid pointer\n", "free(): invalid pointer"},
    {"glibc's guards", "*** stack smashing detected ***: terminated\n", "*** stack smashing detected ***: terminated"},
    {"assert", "train: model.cpp:12: int main(): Assertion `rows > 0' failed.\n",
     "train: model.cpp:12: int main(): Assertion `rows > 0' failed."},
    {"a sanitizer",
     "==4242==ERROR: AddressSanitizer: heap-use-after-free on address 0x60\n    #0 0x4 in main\nSUMMARY: "
     "AddressSanitizer: heap-use-after-free a.c:3 in main\n",
     "AddressSanitizer: heap-use-after-free on address 0x60"},
    {"glog",
     "F1123 22:50:11.123456 4242 loader.cc:12] Check failed: n > 0 (0 vs. 0)\n*** Check failure stack trace: ***\n",
     "Check failed: n > 0 (0 vs. 0)"},
    {"argparse", "usage: train.py [-h] --lr LR\ntrain.py: error: the following arguments are required: --lr\n",
     "train.py: error: the following arguments are required: --lr"},
    {"a shell", "/home/ada/run.sh: line 3: pyhton3: command not found\n",
     "/home/ada/run.sh: line 3: pyhton3: command not found"},
    {"dash", "/bin/sh: 1: pyhton3: not found\n", "/bin/sh: 1: pyhton3: not found"},
    {"a shell whose child was killed", "run.sh: line 2:  4242 Killed                  python3 train.py\n",
     "run.sh: line 2:  4242 Killed                  python3 train.py"},
    {"a shell under set -u", "run.sh: line 4: LR: unbound variable\n", "run.sh: line 4: LR: unbound variable"},
    {"Slurm's own", "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0.\n",
     "slurmstepd: error: Detected 1 oom_kill event in StepId=12.0."},
    {"muster-worker", "[rank 1] step 40/150 loss 2.1\n[rank 1] error: connection reset by peer (exit code 1)\n",
     "connection reset by peer"},

    {"an exception about a number that is none", "ValueError: nan\n", "ValueError: nan"},
    {"a compiler", "a.c:3:5: error: expected ';'\n", "a.c:3:5: error: expected ';'"},
    {"git", "fatal: not a git repository\n", "fatal: not a git repository"},
    {"a shell's child that crashed", "Segmentation fault (core dumped)\n", "Segmentation fault (core dumped)"},

    {"a logger's error is not surely the last", "ERROR:root:no shard left\n", "last line: ERROR:root:no shard left"},
    {"a logger's error, before its farewell", "2026-11-23 10:00:00,123 - train - CRITICAL - no shard left\nbye\n",
     "logged: 2026-11-23 10:00:00,123 - train - CRITICAL - no shard left"},
    {"a logger's error, before progress", "[2026-11-23 10:00:00] [ERROR] no shard left\nstep 7\n",
     "logged: [2026-11-23 10:00:00] [ERROR] no shard left"},
    {"glog's level", "E1123 22:50:12.077 4242 loader.cc:12] no shard left\n",
     "last line: E1123 22:50:12.077 4242 loader.cc:12] no shard left"},
    {"a tool's error that something comes after", "train: error: retrying\nstep 7\n", "logged: train: error: retrying"},
    {"what sys.exit(\"text\") prints", "step 7 loss 2.1\nconfig file missing\n", "last line: config file missing"},
    {"a path is no number", "cannot open /data/v2/x.bin\n", "last line: cannot open /data/v2/x.bin"},

    {"nothing at all", "", ""},
    {"a metric", "validation error: 0.31 at step 10\n", ""},
    {"a metric after its step", "step 10 error: 0.31\n", ""},
    {"a rate", "Error rate: 12%\n", ""},
    {"a metric at the start of the line", "error: 0.31\nError: -0.2\nerror: nan\nValidationError: .5\n", ""},
    {"a metric after a name", "eval: error: 0.31\n", ""},
    {"a logger's note of an error", "INFO: retry after TimeoutError: ignored\n", ""},
    {"a note in brackets", "[2026-11-23 10:00:00] [info] error: ignored\nDEBUG:root:error: x\n", ""},
    {"a warning of glog", "W1123 22:50:12.077 4242 loader.cc:12] error: slow disk\n", ""},
    {"an error in the middle of a line", "the last error: of little interest, step 10\n", ""},
    {"ordinary output", "step 1 loss 2.3\nstep 2 loss 2.2\n", ""},
    {"a warning is no error", "UserWarning: this is an error: no, it is not\n  warnings.warn(\n", ""},
    {"a quantity of that name", "step 3 error 0.25 val_error=0.3\n", ""},
    {"a traceback that was cut", "Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\n", ""},
    {"what an interpreter ignores", "Exception ignored in: <function WeakSet.__init__ at 0x7f>\n", ""},
};

TEST(ErrorLine, EveryRuntimesLastWordsAreFound) {
  for (const auto& [what, log, words] : kCases) EXPECT_EQ(error_line(log), words) << what;
}

/// Lines that torchrun prints when worker 1 of two has failed. `more` stands in the block of the root cause.
std::string torchrun_block(const std::string& exitcode, const std::string& more) {
  return R"(E1128 07:00:12.077 4242 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 0
Traceback (most recent call last):
  File "/usr/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
worker.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-28_07:00:11
  host      : n1
  rank      : 0 (local_rank: 0)
  exitcode  : 1 (pid: 4510)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-28_07:00:10
  host      : n1
  rank      : 1 (local_rank: 1)
  exitcode  : )" +
         exitcode + R"( (pid: 4511)
  error_file: <N/A>
  traceback : )" +
         more + R"(
============================================================
)";
}

constexpr const char* kNoTraceback = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html";

/// The lines of a rank that lost its connection to another rank, and those of that one.
std::string survivor(const std::string& prefix) {
  return prefix + "Traceback (most recent call last):\n" + prefix + "  File \"worker.py\", line 9, in <module>\n" +
         prefix + "RuntimeError: [../gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:4516\n";
}
std::string culprit(const std::string& prefix) {
  return prefix + "Traceback (most recent call last):\n" + prefix + "  File \"worker.py\", line 7, in <module>\n" +
         prefix + "RuntimeError: loss is not finite at step 17\n";
}
constexpr const char* kCulprit = "RuntimeError: loss is not finite at step 17";

TEST(FirstCause, TheRankThatTorchrunNamesIsBelieved) {
  const auto block = torchrun_block("1", kNoTraceback);
  EXPECT_EQ(error_line(culprit("[rank1]: ") + survivor("[rank0]: ") + block), kCulprit);
  EXPECT_EQ(error_line(survivor("[rank0]: ") + culprit("[rank1]: ") + block), kCulprit);
  // Rank 0 failed later by another error, and its lines come first.
  const std::string other = "[rank0]: Traceback (most recent call last):\n[rank0]: KeyError: 'x'\n";
  EXPECT_EQ(error_line(other + culprit("[rank1]: ") + block), kCulprit);
  EXPECT_EQ(error_line(culprit("") + survivor("") + block), kCulprit) << "without ranks before the lines";
}

TEST(FirstCause, TheErrorFileOfAWorkerIsInTorchrunsWords) {
  const std::string traceback =
      "Traceback (most recent call last):\n    File \"errors/__init__.py\", line 346, in wrapper\n      return "
      "f(*args)\n"
      "    File \"worker.py\", line 7, in main\n      raise RuntimeError(\"x\")\n  RuntimeError: loss is not finite at "
      "step 17";
  EXPECT_EQ(error_line(survivor("") + torchrun_block("1", traceback)), kCulprit);
}

/// Lines that torchrun prints when two workers have failed within a second, and it calls rank 0 the first.
std::string tied_block(const std::string& exitcode, const std::string& other, const std::string& root) {
  const auto fields = [](const std::string& rank, const std::string& code, const std::string& traceback) {
    return "[" + rank + "]:\n  time      : 2026-11-28_07:00:10\n  host      : n1\n  rank      : " + rank +
           " (local_rank: " + rank + ")\n  exitcode  : " + code +
           " (pid: 4510)\n  error_file: /tmp/torchelastic_a/none_b/attempt_0/" + rank +
           "/error.json\n  traceback : " + traceback + "\n";
  };
  const std::string line(60, '-'), border(60, '=');
  return border + "\nworker.py FAILED\n" + line + "\nFailures:\n" +
         fields("2", "-15", "Signal 15 (SIGTERM) received by PID 7") + fields("1", exitcode, other) + line +
         "\nRoot Cause (first observed failure):\n" + fields("0", "1", root) + border + "\n";
}

std::string indented_traceback(const std::string& error) {
  return "Traceback (most recent call last):\n    File \"worker.py\", line 7, in main\n      step()\n  " + error +
         "\n  ";
}

TEST(FirstCause, OfWorkersThatFailedWithinASecondASurvivorIsNotTheFirst) {
  const auto lost = indented_traceback("RuntimeError: Connection closed by peer [127.0.0.1]:4516");
  EXPECT_EQ(error_line(tied_block("1", indented_traceback(kCulprit), lost)), kCulprit);
  EXPECT_EQ(error_line(survivor("[rank0]: ") + culprit("[rank1]: ") + tied_block("1", kNoTraceback, kNoTraceback)),
            kCulprit);
  EXPECT_EQ(error_line(tied_block("-11", "Signal 11 (SIGSEGV) received by PID 4511", lost)),
            "rank 1 of the launcher was killed by SIGSEGV");
  EXPECT_EQ(error_line(tied_block("1", kNoTraceback, lost)),
            "RuntimeError: Connection closed by peer [127.0.0.1]:4516");
  EXPECT_EQ(error_line(tied_block("1", indented_traceback("KeyError: 'x'"), indented_traceback(kCulprit))), kCulprit)
      << "torchelastic's word counts where both are errors";
}

TEST(FirstCause, AWorkerThatWasKilledIsNamed) {
  const auto block = torchrun_block("-9", "Signal 9 (SIGKILL) received by PID 4511");
  EXPECT_EQ(error_line(survivor("[rank0]: ") + block), "rank 1 of the launcher was killed by SIGKILL");
  EXPECT_EQ(error_line(block), "rank 1 of the launcher was killed by SIGKILL");
  EXPECT_EQ(error_line(torchrun_block("3", kNoTraceback)), "rank 1 of the launcher exited with 3");
}

TEST(FirstCause, WithoutALaunchersWordTheEarliestErrorThatNoOtherExplainsIsTold) {
  EXPECT_EQ(error_line(culprit("[rank1]: ") + survivor("[rank0]: ")), kCulprit);
  EXPECT_EQ(error_line(survivor("[rank0]: ") + culprit("[rank1]: ")), kCulprit);
  EXPECT_EQ(error_line(culprit("") + survivor("")), kCulprit);
  EXPECT_EQ(error_line("1: step 9\n" + culprit("1: ") + "0: step 9\n" + survivor("0: ")), kCulprit);
  const std::string other = "[rank0]: Traceback (most recent call last):\n[rank0]: KeyError: 'x'\n";
  EXPECT_EQ(error_line(culprit("[rank1]: ") + other), kCulprit);
  EXPECT_EQ(error_line(other + culprit("[rank1]: ")), "KeyError: 'x'");
}

TEST(FirstCause, LinesOfRanksThatWriteBetweenEachOtherAreToldApart) {
  EXPECT_EQ(error_line("[rank1]: Traceback (most recent call last):\n[rank0]: Traceback (most recent call last):\n"
                       "[rank1]:   File \"a.py\", line 1, in f\n[rank0]:   File \"a.py\", line 9, in g\n"
                       "[rank0]: ConnectionResetError: [Errno 104] Connection reset by peer\n"
                       "[rank1]: ValueError: bad batch\n"),
            "ValueError: bad batch");
}

TEST(FirstCause, ALostConnectionThatNothingExplainsIsTheError) {
  const std::string words =
      "RuntimeError: [../gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:4516";
  EXPECT_EQ(error_line(survivor("[rank0]: ")), words);
  std::string long_ago = culprit("");
  for (std::size_t step = 0; step <= kAtEnd; ++step) long_ago += "step " + std::to_string(step) + "\n";
  EXPECT_EQ(error_line(long_ago + survivor("")), words) << "the program went on after the other error";
}

TEST(FirstCause, OfARankThatWasAskedToLeaveOnlyAnErrorAtItsEndCounts) {
  EXPECT_EQ(closing_error("step 7\n" + culprit("")), kCulprit);
  EXPECT_EQ(closing_error(culprit("") + "[W1128 ProcessGroupGloo.cpp:1] Warning: not destroyed\n"), kCulprit);
  EXPECT_EQ(closing_error(culprit("") + "retry\nstep 8\nstep 9\nstep 10\n"), "") << "the program went on";
  EXPECT_EQ(closing_error("step 7\nconfig file missing\n"), "") << "no sure error";
}

TEST(ErrorLine, AnErrorThatTheProgramOutlivedByFarIsNotItsLast) {
  const std::string error = "Traceback (most recent call last):\n  File \"t.py\", line 1, in f\nValueError: caught\n";
  std::string after;
  for (std::size_t step = 0; step < kNearEnd; ++step) after += "step " + std::to_string(step) + "\n";
  EXPECT_EQ(error_line(error + after), "");
  after.clear();
  for (std::size_t step = 0; step < kAtEnd; ++step) after += "step " + std::to_string(step) + "\n";
  EXPECT_EQ(error_line(error + after), "ValueError: caught");
  EXPECT_EQ(error_line("train: error: retrying\n" + after), "");
}

TEST(ErrorLine, AnythingMayStandInALog) {
  std::string bytes;
  for (int round = 0; round < 300; ++round) {
    for (int byte = 0; byte < 256; ++byte) bytes += static_cast<char>((byte * 7 + round) & 0xFF);
  }
  EXPECT_NO_THROW(error_line(bytes));
  EXPECT_NO_THROW(error_line(std::string(1 << 16, '\x1b')));
  EXPECT_NO_THROW(error_line(std::string(1 << 16, '[')));
  EXPECT_EQ(error_line("\x1b[31"), "");
  EXPECT_EQ(error_line("RuntimeError: " + std::string(1 << 16, 'x')).size(), (1U << 16) + 14);
}

}  // namespace
}  // namespace agent::watch
