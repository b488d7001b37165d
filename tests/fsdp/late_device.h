#pragma once
#include <c10/core/Device.h>
#include <c10/core/DeviceType.h>

#include <cstdint>
#include <memory>

#include "fsdp/optim/step_graph.h"

/// A pretend GPU, on which the engine runs as on a real one: LibTorch's device "PrivateUse1". Its memory is the host's,
/// and its kernels are those of the CPU. As on a GPU, a call only puts a kernel into the queue of the current stream.
/// Nothing runs until the host waits for something, or the dice say so.
///
/// [Note: late order] Which stream goes on is drawn, with a seed. Streams are urgent in a drawn order that changes now
/// and then. Only the order within a stream and events between streams hold. So a wait that is missing between two
/// streams lets a kernel run too early for some seeds, and the seed brings that order back each time.
///
/// [Note: late memory] A new block is full of NaN. A freed block belongs to the stream on which it was made, as with
/// LibTorch's allocator for CUDA. It is filled with NaN in the order of that stream, and then given away again there.
/// So a kernel of another stream that still uses it computes NaN for some seeds. A kernel that is started with memory
/// whose storage is freed is an error at once.
///
/// [Note: late graphs] A graph is recorded by the rules of CUDA's stream capture. What is put into the recorded stream,
/// and into streams that wait for an event of it, is kept and does not run. These are errors: a wait of the host for
/// such a stream, a wait of the graph for an event outside of it, a wait outside for an event within it, and a stream
/// that was not waited for in the end. A replay runs each recorded stream beside the others, in a drawn order that
/// respects the recorded events alone. Memory that was allocated meanwhile stays the graph's own. A replay that uses
/// other memory which was freed since is an error.
///
/// A copy to or from the host with non_blocking is late too, and keeps the host's tensor alive, as pinned memory is
/// kept.
///
/// One device, for one rank of a process. Its threads are the rank's own and autograd's.
namespace late {

inline const c10::Device kDevice{c10::kPrivateUse1, 0};

/// Forgets all streams, and draws what follows from `seed`. No tensor of the device may be left.
void begin(std::uint64_t seed);
/// Waits for all that is queued. Throws c10::Error with the first failure of a kernel since begin(), as each wait does.
void finish();

/// Counts since begin(), which tell whether a test had what it is about.
struct Counts {
  std::int64_t kernels = 0;
  std::int64_t streams = 0;    // with kernels
  std::int64_t overtakes = 0;  // kernels that ran before one of another stream that was started earlier
  std::int64_t replays = 0;    // of graphs
};
Counts counts();

/// See [Note: late graphs].
std::unique_ptr<fsdp::DeviceGraph> make_graph();

}  // namespace late
