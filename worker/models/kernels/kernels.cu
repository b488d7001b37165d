#include "worker/models/kernels/kernels.h"

#include <cassert>
#include <cfloat>

#include "worker/models/kernels/pack.cuh"

namespace worker::kernels {
namespace {

constexpr int kThreads = 256;

template <class T>
__device__ T* row_of(const Rows& rows, std::int64_t batch, std::int64_t position, std::int64_t head) {
  return static_cast<T*>(rows.first) + batch * rows.of_batch + position * rows.of_position + head * rows.of_head;
}

template <class T, int N>
__global__ void rotate_kernel(Rows x, const T* cos, const T* sin, Rows out, std::int64_t packs, RotationSizes sizes) {
  const std::int64_t pack = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (pack >= packs) return;
  const std::int64_t half = sizes.half, of_row = half / N, row = pack / of_row, column = pack % of_row * N;
  const std::int64_t token = row / sizes.heads, head = row % sizes.heads;
  const std::int64_t batch = token / sizes.positions, position = token % sizes.positions;
  const std::int64_t place = token % sizes.table_rows * 2 * half + column;
  const T* from = row_of<const T>(x, batch, position, head) + column;
  T* to = row_of<T>(out, batch, position, head) + column;
  const auto x1 = load<T, N>(from), x2 = load<T, N>(from + half);
  const auto c = load<T, N>(cos + place), s = load<T, N>(sin + place);
  const float sign = sizes.inverse ? -1.0f : 1.0f;
  Pack<T, N> y1, y2;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    y1.set(i, x1[i] * c[i] - sign * x2[i] * s[i]);
    y2.set(i, x2[i] * c[i] + sign * x1[i] * s[i]);
  }
  store(to, y1);
  store(to + half, y2);
}

template <class T, int N>
__global__ void swiglu_kernel(const T* gate, const T* up, T* out, std::int64_t packs, std::int64_t of_row,
                              std::int64_t stride) {
  const std::int64_t pack = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (pack >= packs) return;
  const std::int64_t place = pack / of_row * stride + pack % of_row * N;
  const auto g = load<T, N>(gate + place), u = load<T, N>(up + place);
  Pack<T, N> y;
#pragma unroll
  for (int i = 0; i < N; ++i) y.set(i, g[i] / (1.0f + expf(-g[i])) * u[i]);
  store(out + pack * N, y);
}

template <class T, int N>
__global__ void swiglu_backward_kernel(const T* of_out, const T* gate, const T* up, T* of_gate, T* of_up,
                                       std::int64_t packs, std::int64_t of_row, std::int64_t stride) {
  const std::int64_t pack = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (pack >= packs) return;
  const std::int64_t place = pack / of_row * stride + pack % of_row * N;
  const auto d = load<T, N>(of_out + pack * N), g = load<T, N>(gate + place), u = load<T, N>(up + place);
  Pack<T, N> dg, du;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float sigmoid = 1.0f / (1.0f + expf(-g[i]));
    dg.set(i, d[i] * u[i] * sigmoid * (1.0f + g[i] * (1.0f - sigmoid)));
    du.set(i, d[i] * g[i] * sigmoid);
  }
  store(of_gate + place, dg);
  store(of_up + place, du);
}

unsigned blocks_of(std::int64_t packs) {
  return static_cast<unsigned>((packs + kThreads - 1) / kThreads);
}

constexpr int kThreadsOfRow = 512;
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
  __shared__ Softmax of_warp[kThreadsOfRow / kWarp];
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = mine;
  __syncthreads();
  Softmax all = of_warp[0];
  for (int warp = 1; warp < kThreadsOfRow / kWarp; ++warp) all.add(of_warp[warp]);
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
    for (std::int64_t pack = threadIdx.x; pack < packs; pack += kThreadsOfRow) store(row + pack * N, zeros);
    return;
  }
  assert(target >= 0 && target < vocab);
  Softmax mine;
  for (std::int64_t pack = threadIdx.x; pack < packs; pack += kThreadsOfRow) {
    const auto some = load<T, N>(row + pack * N);
#pragma unroll
    for (int i = 0; i < N; ++i) mine.add(some[i]);
  }
  const float of_target = wide(row[target]);
  const Softmax all = over_block(mine);  // waits for all threads, so that none overwrites the target's score before
  if (threadIdx.x == 0) losses[blockIdx.x] = logf(all.sum) + all.greatest - of_target;
  if (!gradient) return;
  const float scale = 1.0f / all.sum;
  for (std::int64_t pack = threadIdx.x; pack < packs; pack += kThreadsOfRow) {
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

void rotate(Number type, const Rows& x, const void* cos, const void* sin, const Rows& out, const RotationSizes& sizes,
            void* stream) {
  // A power of two divides all of these if it divides their bits together.
  const std::int64_t steps = x.of_batch | x.of_position | x.of_head | out.of_batch | out.of_position | out.of_head;
  by_pack(type, sizes.half | steps, {x.first, cos, sin, out.first}, [&](auto* element, auto pack) {
    using T = std::remove_pointer_t<decltype(element)>;
    constexpr int kPack = decltype(pack)::value;
    const std::int64_t packs = sizes.batch * sizes.positions * sizes.heads * sizes.half / kPack;
    if (packs == 0) return;
    rotate_kernel<T, kPack><<<blocks_of(packs), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        x, static_cast<const T*>(cos), static_cast<const T*>(sin), out, packs, sizes);
  });
}

void swiglu(Number type, const void* gate, const void* up, void* out, std::int64_t rows, std::int64_t columns,
            std::int64_t stride, void* stream) {
  by_pack(type, columns | stride, {gate, up, out}, [&](auto* element, auto pack) {
    using T = std::remove_pointer_t<decltype(element)>;
    constexpr int kPack = decltype(pack)::value;
    const std::int64_t of_row = columns / kPack, packs = rows * of_row;
    if (packs == 0) return;
    swiglu_kernel<T, kPack><<<blocks_of(packs), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T*>(gate), static_cast<const T*>(up), static_cast<T*>(out), packs, of_row, stride);
  });
}

void swiglu_backward(Number type, const void* of_out, const void* gate, const void* up, void* of_gate, void* of_up,
                     std::int64_t rows, std::int64_t columns, std::int64_t stride, void* stream) {
  by_pack(type, columns | stride, {of_out, gate, up, of_gate, of_up}, [&](auto* element, auto pack) {
    using T = std::remove_pointer_t<decltype(element)>;
    constexpr int kPack = decltype(pack)::value;
    const std::int64_t of_row = columns / kPack, packs = rows * of_row;
    if (packs == 0) return;
    swiglu_backward_kernel<T, kPack><<<blocks_of(packs), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
        static_cast<const T*>(of_out), static_cast<const T*>(gate), static_cast<const T*>(up), static_cast<T*>(of_gate),
        static_cast<T*>(of_up), packs, of_row, stride);
  });
}

void cross_entropy(Number type, void* scores, const std::int64_t* targets, float* losses, std::int64_t rows,
                   std::int64_t vocab, std::int64_t ignored, bool gradient, void* stream) {
  if (rows == 0) return;
  by_type(type, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    constexpr int kPack = kBytes / sizeof(T);
    const auto start = [&](auto kernel) {
      kernel<<<static_cast<unsigned>(rows), kThreadsOfRow, 0, static_cast<cudaStream_t>(stream)>>>(
          static_cast<T*>(scores), targets, losses, vocab, ignored, gradient);
    };
    if (vocab % kPack == 0 && is_aligned({scores}))
      start(cross_entropy_kernel<T, kPack>);
    else
      start(cross_entropy_kernel<T, 1>);
  });
}

}  // namespace worker::kernels
