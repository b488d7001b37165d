// Goal: what a rank says because another one has gone is told from an error of its own.
// Method: the sentences of libraries, as they print them.
#include "agent/protocol/files.h"

#include <gtest/gtest.h>

namespace agent::protocol {
namespace {

TEST(Survivors, AreKnownByTheirWords) {
  for (const char* words :
       {"RuntimeError: [../gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:4516",
        "RuntimeError: [pair.cc:460] Read error [10.0.0.7]:891: Connection reset by peer",
        "error: connection reset by peer",
        "all-gather of model.layers.0 on rank 1 with rank 3 failed: rank 2 is gone: process 865 on node2 has ended",
        "RuntimeError: [unbound_buffer.cc:84] Timed out waiting 1800000ms for recv operation to complete",
        "RuntimeError: Application timeout caused pair closure",
        "BrokenPipeError: [Errno 32] Broken pipe",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1275, remote process exited or there "
        "was a "
        "network error, NCCL version 2.21.5",
        "torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0] "
        "via "
        "c10d key-value store by key '0', but store->get('0') got error: Socket Timeout",
        "RuntimeError: store->get('default_pg//0//0') got error: wait timeout after 600000ms",
        "torch.distributed.DistNetworkError: failed to recv, got 0 bytes",
        "TCPStore server: failed to recv, got error 104",
        "c10::DistBackendError: [PG ID 0 PG GUID 0(default_pg) Rank 1] Process group watchdog thread terminated with "
        "exception: NCCL error: unhandled system error",
        "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=40, OpType=ALLREDUCE) ran for 600032 "
        "milliseconds before timing out.",
        "[PG 0 Rank 1] ProcessGroupNCCL's watchdog caught collective operation timeout",
        "RuntimeError: Rank 0 failed to pass monitoredBarrier in 30000 ms",
        "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 1/2 clients joined.",
        "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: 15",
        "RuntimeError: DataLoader worker (pid 7) is killed by signal: Terminated. ",
        "KeyboardInterrupt",
        "KeyboardInterrupt: SIGTERM"}) {
    EXPECT_TRUE(is_of_a_survivor(words)) << words;
  }
}

TEST(Survivors, AnErrorOfItsOwnIsNone) {
  for (const char* words : {"", "RuntimeError: loss is not finite", "ValueError: no peer",
                            "torch.OutOfMemoryError: CUDA out of memory", "TimeoutError: the data set did not come",
                            "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed",
                            "FileNotFoundError: [Errno 2] No such file or directory: 'a'"}) {
    EXPECT_FALSE(is_of_a_survivor(words)) << words;
  }
}

}  // namespace
}  // namespace agent::protocol
