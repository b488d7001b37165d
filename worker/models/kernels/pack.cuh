#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "worker/models/kernels/kernels.h"

// Wide accesses and fp32 arithmetic for kernels over fp32, fp16 and bf16.
namespace worker::kernels {

constexpr int kBytes = 16;  // of one access of a thread

__device__ inline float wide(float x) {
  return x;
}
__device__ inline float wide(__half x) {
  return __half2float(x);
}
__device__ inline float wide(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ inline void narrow(float x, float& out) {
  out = x;
}
__device__ inline void narrow(float x, __half& out) {
  out = __float2half(x);
}
__device__ inline void narrow(float x, __nv_bfloat16& out) {
  out = __float2bfloat16(x);
}

/// N elements that are read and written by one access.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T values[N];
  __device__ float operator[](int i) const { return wide(values[i]); }
  __device__ void set(int i, float value) { narrow(value, values[i]); }
};

template <class T, int N>
__device__ Pack<T, N> load(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}

template <class T, int N>
__device__ void store(T* to, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

inline bool is_aligned(std::initializer_list<const void*> pointers) {
  for (const void* pointer : pointers)
    if (reinterpret_cast<std::uintptr_t>(pointer) % kBytes != 0) return false;
  return true;
}

/// Calls `launch` with a null pointer of the element's type.
template <class Launch>
void by_type(Number type, const Launch& launch) {
  switch (type) {
    case Number::kFloat:
      return launch(static_cast<float*>(nullptr));
    case Number::kHalf:
      return launch(static_cast<__half*>(nullptr));
    case Number::kBFloat16:
      return launch(static_cast<__nv_bfloat16*>(nullptr));
  }
}

/// Calls `launch` with a null pointer of the element's type, and how many elements an access takes as a constant:
/// kBytes if rows of `size` elements and the addresses allow it, else one.
template <class Launch>
void by_pack(Number type, std::int64_t size, std::initializer_list<const void*> pointers, const Launch& launch) {
  by_type(type, [&](auto* element) {
    constexpr int kPack = kBytes / sizeof(*element);
    if (size % kPack == 0 && is_aligned(pointers))
      launch(element, std::integral_constant<int, kPack>());
    else
      launch(element, std::integral_constant<int, 1>());
  });
}

}  // namespace worker::kernels
