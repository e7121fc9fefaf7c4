// The tensor core's products by the fragment tables of the PTX ISA ("Matrix fragments for mma"), read backwards: for
// each element of a matrix, which lane has it, and where.
#pragma once
#include <array>

#include "half.h"
#include "intrinsics.h"

namespace cpu {

// Registers that an instruction fills, and registers that it takes.
template <typename T, size_t n> struct Out { std::array<T*, n> to; };
template <typename T, size_t n> using In = std::array<T, n>;
template <typename T, typename... More> Out<T, 1 + sizeof...(More)> out(T& a, More&... more) { return {{&a, &more...}}; }
template <typename T, typename... More> In<T, 1 + sizeof...(More)> in(T a, More... more) { return {a, more...}; }

// An element of a type: how many share a register, and the value of the e-th.
struct F64 {
  static constexpr int packed = 1;
  static double value(double r, int) { return r; }
};
struct F16 {
  static constexpr int packed = 2;
  static double value(unsigned r, int e) { return __ushort_as_half(r >> 16 * e & 0xffff).wide(); }
};
struct BF16 {
  static constexpr int packed = 2;
  static double value(unsigned r, int e) { return __ushort_as_bfloat16(r >> 16 * e & 0xffff).wide(); }
};
struct TF32 {  // the low 13 bits are not looked at
  static constexpr int packed = 1;
  static double value(unsigned r, int) { return __uint_as_float(r & ~0x1fffu); }
};
struct S8 {
  static constexpr int packed = 4;
  static int64_t value(unsigned r, int e) { return static_cast<int8_t>(r >> 8 * e); }
};
struct U8 {
  static constexpr int packed = 4;
  static int64_t value(unsigned r, int e) { return static_cast<uint8_t>(r >> 8 * e); }
};
struct S4 {
  static constexpr int packed = 8;
  static int64_t value(unsigned r, int e) { return static_cast<int32_t>(r << (28 - 4 * e)) >> 28; }
};
struct U4 {
  static constexpr int packed = 8;
  static int64_t value(unsigned r, int e) { return r >> 4 * e & 15; }
};

inline double add(double a, double b, double c) { return std::fma(a, b, c); }
inline int64_t add(int64_t a, int64_t b, int64_t c) { return a * b + c; }

// d = a * b + c: a is M x K of A, b K x 8 of B, as many to a register.
template <typename A, typename B, int M, int K, typename C, typename R, size_t nd, size_t na, size_t nb>
void mma(Out<C, nd> d, In<R, na> a, In<R, nb> b, In<C, nd> c, const char* what) {
  constexpr int P = A::packed, HALVES = M / 8;
  static_assert(P == B::packed && nd == M / 4 && na == M * K / 32 / P && nb == K / 4 / P, "registers of each operand");
  struct Operands { In<R, na> a; In<R, nb> b; } mine{a, b};
  const auto all = exchange(mine, what);
  const int group = lane() / 4, within = lane() % 4;
  for (int i = 0; i < static_cast<int>(nd); ++i) {
    const int row = group + 8 * (i / 2), column = 2 * within + i % 2;
    auto sum = add(decltype(A::value(0, 0))(0), 0, c[i]);
    for (int k = 0; k < K; ++k) {
      const int run = k / (4 * P), holder = k % (4 * P) / P, e = k % P;
      const R x = all.of(row % 8 * 4 + holder).a[run * HALVES + row / 8], y = all.of(column * 4 + holder).b[run];
      sum = add(A::value(x, e), B::value(y, e), sum);
    }
    *d.to[i] = static_cast<C>(sum);
  }
}

// The k of the kept-th of 16 elements of a row of a sparse a ("Sparse matrix storage"): of four k two are kept, of which
// the metadata have the places, two bits each.  Of 16 rows, thread 4 g + t of a warp has in its low half those of row g,
// in its high half of row g + 8, of k 0-15 if t is even, else 16-31; t / 2 must be the selector.
inline unsigned kept_lane(int selector, unsigned row, unsigned kept) { return row % 8 * 4 + 2 * selector + kept / 8; }
inline unsigned kept_place(unsigned meta, unsigned row, unsigned kept) {
  const unsigned code = meta >> (row % 16 / 8 * 16 + kept % 8 / 2 * 4) & 15;
  if (code % 4 >= code / 4) fault("sparse product: the code %u names no two of four k", code);
  return kept / 2 * 4 + (kept % 2 ? code / 4 : code % 4);
}

// d = a * b + c: of a, 16 x 32, 16 x 16 are kept, b is 32 x 8.
template <typename E>
void mma_sp(Out<float, 4> d, In<unsigned, 4> a, In<unsigned, 4> b, In<float, 4> c, unsigned meta, int selector, const char* what) {
  struct Operands { In<unsigned, 4> a, b; unsigned meta; } mine{a, b, meta};
  const auto all = exchange(mine, what);
  for (int i = 0; i < 4; ++i) {
    const int row = lane() / 4 + 8 * (i / 2), column = 2 * (lane() % 4) + i % 2;
    double sum = c[i];
    for (int j = 0; j < 16; ++j) {
      const int k = kept_place(all.of(kept_lane(selector, row, j)).meta, row, j);
      const unsigned x = all.of(row % 8 * 4 + j % 8 / 2).a[j / 8 * 2 + row / 8], y = all.of(column * 4 + k % 8 / 2).b[k / 8];
      sum = add(E::value(x, j % 2), E::value(y, k % 2), sum);
    }
    *d.to[i] = static_cast<float>(sum);
  }
}

}  // namespace cpu

namespace ptx {
inline void mma_sp__ordered_metadata_sync_aligned_m16n8k32_row_col_f32_f16_f16_f32(
    cpu::Out<float, 4> d, cpu::In<unsigned, 4> a, cpu::In<unsigned, 4> b, cpu::In<float, 4> c, unsigned meta, int selector) {
  cpu::mma_sp<cpu::F16>(d, a, b, c, meta, selector, "mma.sp of f16");
}
inline void mma_sp__ordered_metadata_sync_aligned_m16n8k32_row_col_f32_bf16_bf16_f32(
    cpu::Out<float, 4> d, cpu::In<unsigned, 4> a, cpu::In<unsigned, 4> b, cpu::In<float, 4> c, unsigned meta, int selector) {
  cpu::mma_sp<cpu::BF16>(d, a, b, c, meta, selector, "mma.sp of bf16");
}
#define MMA(name, A, B, M, K, C, R)                                                                             \
  template <size_t nd, size_t na, size_t nb>                                                                    \
  void name(cpu::Out<C, nd> d, cpu::In<R, na> a, cpu::In<R, nb> b, cpu::In<C, nd> c) {                          \
    cpu::mma<cpu::A, cpu::B, M, K>(d, a, b, c, #name);                                                          \
  }
#define MMA_FLOAT(type, E, M, K) MMA(mma_sync_aligned_m##M##n8k##K##_row_col_f32_##type##_##type##_f32, E, E, M, K, float, unsigned)
#define MMA_INT(a, A, b, B, M, K) MMA(mma_sync_aligned_m##M##n8k##K##_row_col_s32_##a##_##b##_s32, A, B, M, K, int, unsigned)
#define MMA_SIGNS(n, M, K)                                                                                      \
  MMA_INT(s##n, S##n, s##n, S##n, M, K) MMA_INT(s##n, S##n, u##n, U##n, M, K)                                   \
  MMA_INT(u##n, U##n, s##n, S##n, M, K) MMA_INT(u##n, U##n, u##n, U##n, M, K)
#define MMA_F64(M, K) MMA(mma_sync_aligned_m##M##n8k##K##_row_col_f64_f64_f64_f64, F64, F64, M, K, double, double)
MMA_F64(8, 4) MMA_F64(16, 4) MMA_F64(16, 8) MMA_F64(16, 16)
MMA_FLOAT(f16, F16, 16, 8) MMA_FLOAT(f16, F16, 16, 16) MMA_FLOAT(bf16, BF16, 16, 8) MMA_FLOAT(bf16, BF16, 16, 16)
MMA_FLOAT(tf32, TF32, 16, 4) MMA_FLOAT(tf32, TF32, 16, 8)
MMA_SIGNS(8, 8, 16) MMA_SIGNS(8, 16, 16) MMA_SIGNS(8, 16, 32) MMA_SIGNS(4, 8, 32) MMA_SIGNS(4, 16, 64)
#undef MMA_F64
#undef MMA_SIGNS
#undef MMA_INT
#undef MMA_FLOAT
#undef MMA
}  // namespace ptx
