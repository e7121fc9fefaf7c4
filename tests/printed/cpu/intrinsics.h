// CUDA's own functions and vector types, as far as the printer uses them.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "half.h"
#include "threads.h"

#define __global__ static
#define __device__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __restrict__
#define __shared__
#define __align__(n) __attribute__((aligned(n)))

using std::max;
using std::min;

// ---------------------------------------------------------------------------------------------- vectors
#define VECTOR_2(T, name)                                                  \
  struct alignas(2 * sizeof(T)) name##2 { T x, y; };                       \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }
#define VECTOR_4(T, name)                                                  \
  struct alignas(4 * sizeof(T)) name##4 { T x, y, z, w; };                 \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
VECTOR_2(double, double)
VECTOR_2(float, float) VECTOR_4(float, float)
VECTOR_2(long long, longlong) VECTOR_2(unsigned long long, ulonglong)
VECTOR_2(int, int) VECTOR_4(int, int) VECTOR_2(unsigned, uint) VECTOR_4(unsigned, uint)
VECTOR_2(short, short) VECTOR_4(short, short) VECTOR_2(unsigned short, ushort) VECTOR_4(unsigned short, ushort)
VECTOR_2(signed char, char) VECTOR_4(signed char, char) VECTOR_2(unsigned char, uchar) VECTOR_4(unsigned char, uchar)

// ---------------------------------------------------------------------------------------------- bits
namespace cpu {
template <typename To, typename From> To as(From from) {
  static_assert(sizeof(To) == sizeof(From), "the same number of bits");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
}  // namespace cpu
inline long long __double_as_longlong(double a) { return cpu::as<long long>(a); }
inline double __longlong_as_double(long long a) { return cpu::as<double>(a); }
inline unsigned __float_as_uint(float a) { return cpu::as<unsigned>(a); }
inline float __uint_as_float(unsigned a) { return cpu::as<float>(a); }
inline float __int_as_float(int a) { return cpu::as<float>(a); }
inline int __popc(unsigned a) { return __builtin_popcount(a); }
inline int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
inline int __clz(unsigned a) { return a ? __builtin_clz(a) : 32; }
inline int __clzll(unsigned long long a) { return a ? __builtin_clzll(a) : 64; }
inline unsigned long long __brevll(unsigned long long a) {
  unsigned long long r = 0;
  for (int i = 0; i < 64; ++i) r |= (a >> i & 1) << (63 - i);
  return r;
}
inline unsigned __brev(unsigned a) { return static_cast<unsigned>(__brevll(a) >> 32); }
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned shift) {
  return static_cast<unsigned>((static_cast<uint64_t>(hi) << 32 | lo) >> (shift & 31));
}
template <typename Byte, typename Sum> Sum cpu_dp4a(Sum a, Sum b, Sum c) {
  unsigned sum = c;
  for (int i = 0; i < 4; ++i) sum += static_cast<Byte>(a >> 8 * i) * static_cast<Byte>(b >> 8 * i);
  return static_cast<Sum>(sum);
}
inline int __dp4a(int a, int b, int c) { return cpu_dp4a<int8_t>(a, b, c); }
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) { return cpu_dp4a<uint8_t>(a, b, c); }

// ---------------------------------------------------------------------------------------------- memory
template <typename T> T __ldg(const T* p) { return *p; }
template <typename T> T __ldcs(const T* p) { return *p; }
template <typename T> T __ldcg(const T* p) { return *p; }
template <typename T> void __stcs(T* p, T v) { *p = v; }
template <typename T> void __stcg(T* p, T v) { *p = v; }

namespace cpu {
template <typename T, typename F> T change(T* p, F next) {
  const T old = *p;
  *p = next(old);
  return old;
}
}  // namespace cpu
template <typename T> T atomicAdd(T* p, T v) {
  return cpu::change(p, [=](T old) {
    if constexpr (std::is_integral_v<T>)  // wraps, which a signed sum of C does not
      return static_cast<T>(static_cast<std::make_unsigned_t<T>>(old) + static_cast<std::make_unsigned_t<T>>(v));
    else
      return static_cast<T>(old + v);
  });
}
template <typename T> T atomicMax(T* p, T v) { return cpu::change(p, [=](T old) { return std::max(old, v); }); }
template <typename T> T atomicMin(T* p, T v) { return cpu::change(p, [=](T old) { return std::min(old, v); }); }
template <typename T> T atomicExch(T* p, T v) { return cpu::change(p, [=](T) { return v; }); }
inline unsigned atomicInc(unsigned* p, unsigned top) {
  return cpu::change(p, [=](unsigned old) { return old >= top ? 0 : old + 1; });
}

// ---------------------------------------------------------------------------------------------- warps
template <typename T> T __shfl_sync(unsigned, T v, int from) { return cpu::exchange(v, "__shfl_sync").of(from & 31); }
template <typename T> T __shfl_up_sync(unsigned, T v, int by) {
  const int from = static_cast<int>(cpu::lane()) - by;
  return cpu::exchange(v, "__shfl_up_sync").of(from < 0 ? cpu::lane() : from);
}
template <typename T> T __shfl_down_sync(unsigned, T v, int by) {
  const int from = static_cast<int>(cpu::lane()) + by;
  return cpu::exchange(v, "__shfl_down_sync").of(from > 31 ? cpu::lane() : from);
}
template <typename T> T __shfl_xor_sync(unsigned, T v, int by) {
  const int from = static_cast<int>(cpu::lane()) ^ by;
  return cpu::exchange(v, "__shfl_xor_sync").of(from > 31 ? cpu::lane() : from);
}
inline unsigned __ballot_sync(unsigned, bool mine) {
  const auto all = cpu::exchange(mine, "__ballot_sync");
  unsigned bits = 0;
  for (unsigned i = 0; i < cpu::lanes(); ++i) bits |= static_cast<unsigned>(all.of(i)) << i;
  return bits;
}
