#include "worker/models/kernels/cpu_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

// A kernel computes packs of 16 numbers. The compiler makes them one register of AVX-512, two of AVX2 or four of SSE2;
// run() takes the code for what the machine has.

namespace worker::kernels::cpu {
namespace {

#define MUSTER_INLINE [[gnu::always_inline]] inline

constexpr int kLanes = 16;
using Floats = float __attribute__((vector_size(64)));
using Ints = std::int32_t __attribute__((vector_size(64)));
using Bits = std::uint32_t __attribute__((vector_size(64)));
using Halves = std::uint16_t __attribute__((vector_size(32)));

/// The bits of a bf16 number.
struct BFloat16 {
  std::uint16_t bits;
};

/// All lanes of a pack count.
struct Whole {
  static constexpr int count = kLanes;
};
/// The first lanes count. The others read zeros and are not written.
struct Part {
  int count;
};

MUSTER_INLINE Floats all(float value) {
  return Floats{} + value;
}

MUSTER_INLINE Floats wide(Floats values) {
  return values;
}
MUSTER_INLINE Floats wide(Halves values) {
  return std::bit_cast<Floats>(__builtin_convertvector(values, Bits) << 16);
}

template <class T>
using Stored = std::conditional_t<std::is_same_v<T, float>, Floats, Halves>;

MUSTER_INLINE void narrow(Floats values, Floats& out) {
  out = values;
}
/// Rounds to the nearest number, and to an even one between two. NaN stays NaN.
MUSTER_INLINE void narrow(Floats values, Halves& out) {
  const Bits bits = std::bit_cast<Bits>(values);
  const Bits rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const Bits nan = Bits{} + 0x7fc0u;
  out = __builtin_convertvector(values == values ? rounded : nan, Halves);
}

template <class T, class Lanes>
MUSTER_INLINE Floats load(const T* from, Lanes lanes) {
  Stored<T> values{};
  std::memcpy(&values, from, sizeof(T) * static_cast<std::size_t>(lanes.count));
  return wide(values);
}

template <class T, class Lanes>
MUSTER_INLINE void store(T* to, Floats values, Lanes lanes) {
  Stored<T> stored;
  narrow(values, stored);
  std::memcpy(to, &stored, sizeof(T) * static_cast<std::size_t>(lanes.count));
}

/// Calls `body` with the first element and the lanes of each pack.
template <class Body>
MUSTER_INLINE void for_packs(std::int64_t count, const Body& body) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body(i, Whole());
  if (i < count) body(i, Part{static_cast<int>(count - i)});
}

MUSTER_INLINE float sum_of(Floats values) {
  float sum = 0;
  for (int i = 0; i < kLanes; ++i) sum += values[i];
  return sum;
}

/// exp(x) for x from -87 to 88, and that of the nearer end beyond: 2^n times a polynomial of the rest (Moshier, Cephes,
/// expf). NaN stays NaN.
MUSTER_INLINE Floats exp_of(Floats x) {
  constexpr float kToRound = 12582912.0f;  // 1.5 * 2^23: sums with it have no bits behind the point
  x = x < -87.0f ? all(-87.0f) : x;
  x = x > 88.0f ? all(88.0f) : x;
  const Floats shifted = x * 1.44269504088896341f + kToRound;
  const Floats n = shifted - kToRound;
  const Floats r = x - n * 0.693359375f + n * 2.12194440e-4f;
  Floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  // The lowest bits of `shifted` are n.
  const Bits exponent = (std::bit_cast<Bits>(shifted) - std::bit_cast<std::uint32_t>(kToRound) + 127u) << 23;
  return p * std::bit_cast<Floats>(exponent);
}

MUSTER_INLINE Floats sigmoid_of(Floats x) {
  return 1.0f / (1.0f + exp_of(-x));
}

template <class T>
struct Rotate {
  const Rows &x, &out;
  const T *cos, *sin;
  const RotationSizes& sizes;
  std::int64_t begin, end;

  template <class Element>
  MUSTER_INLINE static Element* row(const Rows& rows, std::int64_t batch, std::int64_t position) {
    return static_cast<Element*>(rows.first) + batch * rows.of_batch + position * rows.of_position;
  }

  MUSTER_INLINE void operator()() const {
    const float sign = sizes.inverse ? -1.0f : 1.0f;
    const std::int64_t half = sizes.half;
    for (std::int64_t token = begin; token < end; ++token) {
      const std::int64_t batch = token / sizes.positions, position = token % sizes.positions;
      const T* from = row<const T>(x, batch, position);
      T* to = row<T>(out, batch, position);
      const T *c = cos + token % sizes.table_rows * 2 * half, *s = sin + token % sizes.table_rows * 2 * half;
      for (std::int64_t head = 0; head < sizes.heads; ++head, from += x.of_head, to += out.of_head) {
        for_packs(half, [&](std::int64_t i, auto lanes) {
          const Floats x1 = load(from + i, lanes), x2 = load(from + half + i, lanes);
          const Floats cosine = load(c + i, lanes), sine = sign * load(s + i, lanes);
          store(to + i, x1 * cosine - x2 * sine, lanes);
          store(to + half + i, x2 * cosine + x1 * sine, lanes);
        });
      }
    }
  }
};

template <class T>
struct Swiglu {
  const T *gate, *up;
  T* out;
  std::int64_t rows, columns, stride;

  MUSTER_INLINE void operator()() const {
    for (std::int64_t row = 0; row < rows; ++row) {
      const T *g = gate + row * stride, *u = up + row * stride;
      T* to = out + row * columns;
      for_packs(columns, [&](std::int64_t i, auto lanes) {
        const Floats x = load(g + i, lanes);
        store(to + i, x * sigmoid_of(x) * load(u + i, lanes), lanes);
      });
    }
  }
};

template <class T>
struct SwigluBackward {
  const T *of_out, *gate, *up;
  T *of_gate, *of_up;
  std::int64_t rows, columns, stride;

  MUSTER_INLINE void operator()() const {
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t first = row * stride;
      for_packs(columns, [&](std::int64_t i, auto lanes) {
        const Floats d = load(of_out + row * columns + i, lanes);
        const Floats x = load(gate + first + i, lanes), u = load(up + first + i, lanes);
        const Floats sigmoid = sigmoid_of(x), silu = x * sigmoid;
        store(of_gate + first + i, d * u * (sigmoid + silu * (1.0f - sigmoid)), lanes);
        store(of_up + first + i, d * silu, lanes);
      });
    }
  }
};

template <class T>
struct Norm {
  const NormForward& n;

  MUSTER_INLINE void operator()() const {
    for (std::int64_t row = 0; row < n.rows; ++row) {
      const T* x = static_cast<const T*>(n.x) + row * n.columns;
      Floats squares{};
      if (n.residual != nullptr) {
        const T* residual = static_cast<const T*>(n.residual) + row * n.columns;
        T* sum = static_cast<T*>(n.sum) + row * n.columns;
        for_packs(n.columns, [&](std::int64_t i, auto lanes) {
          store(sum + i, load(x + i, lanes) + load(residual + i, lanes), lanes);
          const Floats value = load(sum + i, lanes);
          squares += value * value;
        });
        x = sum;
      } else {
        for_packs(n.columns, [&](std::int64_t i, auto lanes) {
          const Floats value = load(x + i, lanes);
          squares += value * value;
        });
      }
      const float mean = sum_of(squares) / static_cast<float>(n.columns);
      const float inverse = 1.0f / std::sqrt(mean + static_cast<float>(n.eps));
      n.inverse[row] = inverse;
      T* out = static_cast<T*>(n.out) + row * n.columns;
      for_packs(n.columns, [&](std::int64_t i, auto lanes) {
        store(out + i, load(x + i, lanes) * inverse * load(n.weight + i, lanes), lanes);
      });
    }
  }
};

// With y = x / rms * w and d = dy * w: dx = (d - x * sum(d * x) / (columns * rms^2)) / rms, and dw = sum(dy * x / rms).
template <class T>
struct NormOfGradient {
  const NormBackward& n;

  MUSTER_INLINE void operator()() const {
    if (n.of_weight != nullptr) std::fill_n(n.of_weight, n.columns, 0.0f);
    for (std::int64_t row = 0; row < n.rows; ++row) {
      const T* x = static_cast<const T*>(n.x) + row * n.columns;
      const T* d = static_cast<const T*>(n.of_out) + row * n.columns;
      const float inverse = n.inverse[row];
      Floats products{};
      for_packs(n.columns, [&](std::int64_t i, auto lanes) {
        const Floats value = load(x + i, lanes), of_out = load(d + i, lanes);
        products += of_out * load(n.weight + i, lanes) * value;
        if (n.of_weight != nullptr)
          store(n.of_weight + i, load(n.of_weight + i, lanes) + of_out * (value * inverse), lanes);
      });
      if (n.of_x == nullptr) continue;
      const float share = sum_of(products) / static_cast<float>(n.columns) * inverse * inverse;
      T* out = static_cast<T*>(n.of_x) + row * n.columns;
      const T* more = n.of_sum == nullptr ? nullptr : static_cast<const T*>(n.of_sum) + row * n.columns;
      for_packs(n.columns, [&](std::int64_t i, auto lanes) {
        const Floats own = (load(d + i, lanes) * load(n.weight + i, lanes) - load(x + i, lanes) * share) * inverse;
        store(out + i, more == nullptr ? own : own + load(more + i, lanes), lanes);
      });
    }
  }
};

struct CrossEntropy {
  float* scores;
  const std::int64_t* targets;
  float* losses;
  std::int64_t rows, vocab, ignored;
  bool gradient;

  MUSTER_INLINE void operator()() const {
    for (std::int64_t r = 0; r < rows; ++r) {
      float* row = scores + r * vocab;
      const std::int64_t target = targets[r];
      if (target == ignored) {
        losses[r] = 0;
        if (gradient) std::fill_n(row, vocab, 0.0f);
        continue;
      }
      Floats most = all(row[0]);
      for_packs(vocab, [&](std::int64_t i, auto lanes) {
        const Floats some = load(row + i, lanes);
        if constexpr (std::is_same_v<decltype(lanes), Whole>) {
          most = some > most ? some : most;
        } else {
          for (int lane = 0; lane < lanes.count; ++lane) most[lane] = some[lane] > most[lane] ? some[lane] : most[lane];
        }
      });
      float greatest = most[0];
      for (int lane = 1; lane < kLanes; ++lane) greatest = most[lane] > greatest ? most[lane] : greatest;
      const float of_target = row[target];
      Floats sums{};
      for_packs(vocab, [&](std::int64_t i, auto lanes) {
        Floats some = exp_of(load(row + i, lanes) - greatest);
        if constexpr (!std::is_same_v<decltype(lanes), Whole>)
          for (int lane = lanes.count; lane < kLanes; ++lane) some[lane] = 0;
        sums += some;
        if (gradient) store(row + i, some, lanes);
      });
      const float sum = sum_of(sums);
      losses[r] = std::log(sum) + greatest - of_target;
      if (!gradient) continue;
      const float scale = 1.0f / sum;
      for_packs(vocab, [&](std::int64_t i, auto lanes) { store(row + i, load(row + i, lanes) * scale, lanes); });
      row[target] -= 1.0f;
    }
  }
};

#ifdef __x86_64__
template <class Kernel>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"), gnu::flatten]] void by_avx512(const Kernel& kernel) {
  kernel();
}
template <class Kernel>
[[gnu::target("avx2,fma"), gnu::flatten]] void by_avx2(const Kernel& kernel) {
  kernel();
}
const bool kHasAvx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
const bool kHasAvx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif

template <class Kernel>
void run(const Kernel& kernel) {
#ifdef __x86_64__
  if (kHasAvx512) return by_avx512(kernel);
  if (kHasAvx2) return by_avx2(kernel);
#endif
  kernel();
}

/// Calls `run_one` with a null pointer of the element's type. fp16 has no kernels here.
template <class RunOne>
void by_type(Number type, const RunOne& run_one) {
  if (type == Number::kFloat) return run_one(static_cast<float*>(nullptr));
  run_one(static_cast<BFloat16*>(nullptr));
}

template <class T>
const T* as(const void* pointer) {
  return static_cast<const T*>(pointer);
}
template <class T>
T* as(void* pointer) {
  return static_cast<T*>(pointer);
}

}  // namespace

void rotate(Number type, const Rows& x, const void* cos, const void* sin, const Rows& out, const RotationSizes& sizes,
            std::int64_t begin, std::int64_t end) {
  by_type(type, [&]<class T>(T*) { run(Rotate<T>{x, out, as<T>(cos), as<T>(sin), sizes, begin, end}); });
}

void swiglu(Number type, const void* gate, const void* up, void* out, std::int64_t rows, std::int64_t columns,
            std::int64_t stride) {
  by_type(type, [&]<class T>(T*) { run(Swiglu<T>{as<T>(gate), as<T>(up), as<T>(out), rows, columns, stride}); });
}

void swiglu_backward(Number type, const void* of_out, const void* gate, const void* up, void* of_gate, void* of_up,
                     std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  by_type(type, [&]<class T>(T*) {
    run(SwigluBackward<T>{as<T>(of_out), as<T>(gate), as<T>(up), as<T>(of_gate), as<T>(of_up), rows, columns, stride});
  });
}

void rms_norm(Number type, const NormForward& norm) {
  by_type(type, [&]<class T>(T*) { run(Norm<T>{norm}); });
}

void rms_norm_backward(Number type, const NormBackward& norm) {
  by_type(type, [&]<class T>(T*) { run(NormOfGradient<T>{norm}); });
}

void cross_entropy(float* scores, const std::int64_t* targets, float* losses, std::int64_t rows, std::int64_t vocab,
                   std::int64_t ignored, bool gradient) {
  run(CrossEntropy{scores, targets, losses, rows, vocab, ignored, gradient});
}

}  // namespace worker::kernels::cpu
