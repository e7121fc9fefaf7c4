// 16-bit floats by the definitions of IEEE 754 and bfloat16, worked out with integers; arithmetic rounds once.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

namespace cpu {

// A float of `exponent` and `mantissa` bits in 16.
template <int exponent, int mantissa> struct Small {
  uint16_t bits;

  static constexpr int bias = (1 << (exponent - 1)) - 1, top = (1 << exponent) - 1;

  double wide() const {
    const int e = bits >> mantissa & top, m = bits & ((1 << mantissa) - 1);
    const double sign = bits >> 15 ? -1.0 : 1.0;
    if (e == top) return m ? std::nan("") : sign * INFINITY;
    return sign * (e ? std::ldexp((1 << mantissa) + m, e - bias - mantissa) : std::ldexp(m, 1 - bias - mantissa));
  }

  // To nearest, ties to even.
  static Small of(double x) {
    const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
    const uint16_t infinity = top << mantissa;
    if (std::isnan(x)) return {static_cast<uint16_t>(0x7fff)};
    x = std::fabs(x);
    if (std::isinf(x)) return {static_cast<uint16_t>(sign | infinity)};
    int e = 0;
    if (x != 0) std::frexp(x, &e);
    e = e - 1 < 1 - bias ? 1 - bias : e - 1;             // of the unit's place: subnormals share the smallest
    const double units = std::nearbyint(std::ldexp(x, mantissa - e));  // exact: a power of two
    if (units == 0) return {sign};
    const long n = static_cast<long>(units);             // 2^mantissa .. 2^(mantissa + 1), or a subnormal
    const long made = n + (static_cast<long>(e + bias - 1) << mantissa);
    return {static_cast<uint16_t>(sign | (made >= infinity ? infinity : made))};
  }
};

}  // namespace cpu

struct __half : cpu::Small<5, 10> {
  __half() = default;
  __half(cpu::Small<5, 10> s) : cpu::Small<5, 10>(s) {}
};
struct __nv_bfloat16 : cpu::Small<8, 7> {
  __nv_bfloat16() = default;
  __nv_bfloat16(cpu::Small<8, 7> s) : cpu::Small<8, 7>(s) {}
};

// A double holds the sum, difference and product of two of them exactly, and a quotient closely enough to round twice.
#define SMALL_FLOAT(T, name, title)                                                                            \
  inline T operator+(T a, T b) { return T::of(a.wide() + b.wide()); }                                          \
  inline T operator-(T a, T b) { return T::of(a.wide() - b.wide()); }                                          \
  inline T operator*(T a, T b) { return T::of(a.wide() * b.wide()); }                                          \
  inline T operator/(T a, T b) { return T::of(a.wide() / b.wide()); }                                          \
  inline T operator-(T a) { a.bits ^= 0x8000; return a; }                                                      \
  inline bool operator<(T a, T b) { return a.wide() < b.wide(); }                                              \
  inline bool operator<=(T a, T b) { return a.wide() <= b.wide(); }                                            \
  inline bool operator==(T a, T b) { return a.wide() == b.wide(); }                                            \
  inline bool operator!=(T a, T b) { return a.wide() != b.wide(); }                                            \
  inline T __habs(T a) { a.bits &= 0x7fff; return a; }                                                         \
  inline T hsqrt(T a) { return T::of(std::sqrt(a.wide())); }                                                   \
  inline T __hmin(T a, T b) { return T::of(std::fmin(a.wide(), b.wide())); }                                   \
  inline T __hmax(T a, T b) { return T::of(std::fmax(a.wide(), b.wide())); }                                   \
  inline T __hfma(T a, T b, T c) { return T::of(std::fma(a.wide(), b.wide(), c.wide())); }                     \
  inline float __##name##2float(T a) { return static_cast<float>(a.wide()); }                                  \
  inline T __float2##name##_rn(float a) { return T::of(a); }                                                   \
  inline T __float2##name(float a) { return T::of(a); }                                                        \
  inline T __double2##name(double a) { return T::of(a); }                                                      \
  inline T __int2##name##_rn(int a) { return T::of(a); }                                                       \
  inline T __uint2##name##_rn(unsigned a) { return T::of(a); }                                                 \
  inline T __short2##name##_rn(short a) { return T::of(a); }                                                   \
  inline T __ushort2##name##_rn(unsigned short a) { return T::of(a); }                                         \
  inline T __ll2##name##_rn(long long a) { return T::of(static_cast<double>(a)); }                             \
  inline T __ull2##name##_rn(unsigned long long a) { return T::of(static_cast<double>(a)); }                   \
  inline unsigned short __##title##_as_ushort(T a) { return a.bits; }                                          \
  inline T __ushort_as_##title(unsigned short a) { T t; t.bits = a; return t; }
SMALL_FLOAT(__half, half, half)
SMALL_FLOAT(__nv_bfloat16, bfloat16, bfloat16)
#undef SMALL_FLOAT
