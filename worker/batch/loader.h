#pragma once

#include <cstdint>
#include <memory>

#include "data/order/order.h"
#include "worker/batch/batch.h"

namespace worker {

struct LoaderOptions {
  int threads = 2;         ///< that make batches; 0: next() makes its batch itself
  int ahead = 2;           ///< batches made before next() asks for them, at least 1 if there are threads
  bool pin = false;        ///< batches lie in pinned memory, for a GPU
  std::uint64_t seed = 0;  ///< of sample_draw()
};

/// Batches of this rank, in the order of an Order. Threads make them ahead. The batches are equal bit for bit for every
/// number of threads, those of LibTorch included. Over all ranks, a total batch holds the same samples at every world
/// size.
///
/// The state is one number, position(). A Loader that seeks to it goes on with the same batches, at any world size.
///
/// The threads assume that next() will ask for as many samples as the last time. Where it asks for another number, what
/// they have made is thrown away. Memory: `ahead` batches, and the permutation of the Order.
/// One thread at a time may call its functions. The destructor waits for batches that a thread is making.
class Loader {
 public:
  /// `rank` is in [0, world_size). The order's samples are those of the source. Throws std::invalid_argument naming the
  /// value and what it must be.
  Loader(std::shared_ptr<const BatchSource> source, data::order::Order order, int rank, int world_size,
         LoaderOptions options = {});
  ~Loader();
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;

  /// This rank's next `samples` samples, at least 1. All ranks must take the same counts in the same order. Rethrows
  /// what the source threw for this batch. The position is then unchanged, so the next call tries again.
  Batch next(std::int64_t samples);

  /// The number of samples handed out so far, over all ranks. Batches made ahead do not count. Save this number as the
  /// state.
  std::int64_t position() const;
  /// Continues from a saved position, at least 0, at any world size.
  void seek(std::int64_t position);
  /// Epochs handed out so far: 1.5 is the middle of the second one.
  double epoch() const;

  /// Milliseconds that next() has waited for its batches, in all.
  double waited_ms() const;

 private:
  class Threads;
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace worker
