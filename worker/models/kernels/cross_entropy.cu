#include "worker/models/kernels/cross_entropy.h"

#include <cassert>
#include <cfloat>

#include "worker/models/kernels/pack.cuh"

namespace worker::kernels {
namespace {

constexpr int kThreads = 512;
constexpr int kWarp = 32;

/// The greatest of some scores, and the sum of exp(score - greatest): a softmax in one pass (Milakov and Gimelshein,
/// arXiv 1805.02867).
struct Softmax {
  float greatest = -FLT_MAX, sum = 0;

  __device__ void add(float score) {
    if (score > greatest) {
      sum = sum * expf(greatest - score) + 1;
      greatest = score;
    } else {
      sum += expf(score - greatest);
    }
  }
  __device__ void add(const Softmax& other) {
    const float both = fmaxf(greatest, other.greatest);
    sum = sum * expf(greatest - both) + other.sum * expf(other.greatest - both);
    greatest = both;
  }
};

__device__ Softmax over_block(Softmax mine) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    const Softmax other{__shfl_xor_sync(~0U, mine.greatest, distance), __shfl_xor_sync(~0U, mine.sum, distance)};
    mine.add(other);
  }
  __shared__ Softmax of_warp[kThreads / kWarp];
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = mine;
  __syncthreads();
  Softmax all = of_warp[0];
  for (int warp = 1; warp < kThreads / kWarp; ++warp) all.add(of_warp[warp]);
  return all;
}

/// One block a row.
template <class T, int N>
__global__ void cross_entropy_kernel(T* scores, const std::int64_t* targets, float* losses, std::int64_t vocab,
                                     std::int64_t ignored, bool gradient) {
  T* row = scores + std::int64_t{blockIdx.x} * vocab;
  const std::int64_t target = targets[blockIdx.x];
  const std::int64_t packs = vocab / N;
  if (target == ignored) {
    if (threadIdx.x == 0) losses[blockIdx.x] = 0;
    if (!gradient) return;
    Pack<T, N> zeros;
    for (int i = 0; i < N; ++i) zeros.set(i, 0);
    for (std::int64_t pack = threadIdx.x; pack < packs; pack += kThreads) store(row + pack * N, zeros);
    return;
  }
  assert(target >= 0 && target < vocab);
  Softmax mine;
  for (std::int64_t pack = threadIdx.x; pack < packs; pack += kThreads) {
    const auto some = load<T, N>(row + pack * N);
#pragma unroll
    for (int i = 0; i < N; ++i) mine.add(some[i]);
  }
  const float of_target = wide(row[target]);
  const Softmax all = over_block(mine);  // waits for all threads, so that none overwrites the target's score before
  if (threadIdx.x == 0) losses[blockIdx.x] = logf(all.sum) + all.greatest - of_target;
  if (!gradient) return;
  const float scale = 1.0f / all.sum;
  for (std::int64_t pack = threadIdx.x; pack < packs; pack += kThreads) {
    auto some = load<T, N>(row + pack * N);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float probability = expf(some[i] - all.greatest) * scale;
      some.set(i, pack * N + i == target ? probability - 1 : probability);
    }
    store(row + pack * N, some);
  }
}

}  // namespace

void cross_entropy(Number type, void* scores, const std::int64_t* targets, float* losses, std::int64_t rows,
                   std::int64_t vocab, std::int64_t ignored, bool gradient, void* stream) {
  if (rows == 0) return;
  by_type(type, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    constexpr int kPack = kBytes / sizeof(T);
    const auto start = [&](auto kernel) {
      kernel<<<static_cast<unsigned>(rows), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
          static_cast<T*>(scores), targets, losses, vocab, ignored, gradient);
    };
    if (vocab % kPack == 0 && is_aligned({scores}))
      start(cross_entropy_kernel<T, kPack>);
    else
      start(cross_entropy_kernel<T, 1>);
  });
}

}  // namespace worker::kernels
