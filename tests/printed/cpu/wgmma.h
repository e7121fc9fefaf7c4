// Products of warpgroups by the PTX ISA: matrix descriptors read bit by bit, operands read and sums written as late as
// the wait allows.
#pragma once
#include "memory.h"
#include "mma.h"

namespace cpu {

constexpr unsigned GROUP = 128;  // threads of a warpgroup
constexpr uint64_t IN_REGISTERS = ~0ull;  // in place of a descriptor

inline void meet_group(const char* what) {
  if (block_threads % GROUP) fault("%s: a block of %u threads", what, block_threads);
  meet(group_meeting[rank() * MAX_WARPS + tid() / GROUP], GROUP, what);
}

// Where the 16-bit element of row (or column) i and of k lies.  Bits of a descriptor: address 0-13, leading offset 16-29,
// stride offset 32-45, all in units of 16 bytes; base offset 49-51; swizzle 62-63 (1: 128 bytes, 2: 64, 3: 32).
// "Canonical layouts": of core matrices, 8 rows of 16 bytes each; a swizzle spreads the rows to its width.
inline uint16_t element(uint64_t descriptor, bool mn_major, unsigned i, unsigned k) {
  const unsigned start = (descriptor & 0x3fff) * 16, lead = (descriptor >> 16 & 0x3fff) * 16, stride = (descriptor >> 32 & 0x3fff) * 16;
  const unsigned kind = descriptor >> 62, width = kind ? 256 >> kind : 16;
  if (start % (8 * width) >= width && kind) fault("wgmma: a tile from byte %u, not in the first row of its swizzle", start);
  const unsigned outer = mn_major ? k : i, inner = 2 * (mn_major ? i : k);  // row, and bytes along it
  unsigned at = start + outer % 8 * width + inner % width;
  if (kind) at += outer / 8 * stride + inner / width * lead;
  else if (mn_major) at += k / 8 * lead + i / 8 * stride;
  else at += i / 8 * stride + k / 8 * lead;
  if (kind && !mn_major && start % width + inner >= width) fault("wgmma: a row of k leaves its swizzle");
  if (kind) at ^= (at >> 7 & (8 >> (kind - 1)) - 1) << 4;  // as many bits of bits 7-9 as there are pieces in a row
  return *static_cast<const uint16_t*>(shared_place(at, 2, "wgmma"));
}

template <typename T> void matrix(std::vector<float>& m, uint64_t descriptor, bool mn_major, unsigned count, unsigned depth) {
  m.resize(count * depth);
  for (unsigned i = 0; i < count; ++i)
    for (unsigned k = 0; k < depth; ++k) m[depth * i + k] = T::value(element(descriptor, mn_major, i, k), 0);
}

// The k of the kept-th element of a row of a sparse a of four warps, each with 16 rows.
inline unsigned place(unsigned first, size_t number, int selector, unsigned row, unsigned kept) {
  const unsigned thread = first + row / 16 * 32 + kept_lane(selector, row, kept);
  return kept_place(threads[thread].product_groups.front()[number].meta, row, kept);
}

// a from the registers of four warps, each with 16 rows: two k a register, rows g and g + 8 follow one another, then k + 8.
template <typename T> void fragments(std::vector<float>& m, unsigned first, size_t number) {
  m.resize(64 * 16);
  for (unsigned row = 0; row < 64; ++row)
    for (unsigned k = 0; k < 16; ++k) {
      const Thread& holder = threads[first + row / 16 * 32 + row % 8 * 4 + k % 8 / 2];
      m[16 * row + k] = T::value(holder.product_groups.front()[number].fragment[k / 8 * 2 + row % 16 / 8], k % 2);
    }
}

// What the first warps of a warpgroup have asked for, done for all of them: row and column of each register of d.
inline void multiply(unsigned first, size_t number) {
  const Product& p = threads[first].product_groups.front()[number];
  static std::vector<float> a, b;
  const bool sparse = p.selector >= 0;
  const unsigned depth = sparse ? 32 : 16;
  if (p.a == IN_REGISTERS) (p.bf16 ? fragments<BF16> : fragments<F16>)(a, first, number);
  else (p.bf16 ? matrix<BF16> : matrix<F16>)(a, p.a, p.a_mn_major, 64, 16);
  (p.bf16 ? matrix<BF16> : matrix<F16>)(b, p.b, p.b_mn_major, 2 * p.sums.size(), depth);
  for (unsigned t = 0; t < GROUP; ++t) {
    const Product& mine = threads[first + t].product_groups.front()[number];
    if (mine.a != p.a || mine.b != p.b || mine.sums.size() != p.sums.size()) fault("wgmma: descriptors of a warpgroup differ");
    for (unsigned r = 0; r < mine.sums.size(); ++r) {
      const unsigned row = t / 32 * 16 + t % 32 / 4 + (r & 2) * 4, column = r / 4 * 8 + t % 4 * 2 + (r & 1);
      double sum = 0;
      for (unsigned k = 0; k < 16; ++k)
        sum += static_cast<double>(a[16 * row + k]) * b[depth * column + (sparse ? place(first, number, p.selector, row, k) : k)];
      *mine.sums[r] += static_cast<float>(sum);
    }
  }
}

template <size_t n> void product(Out<float, n> d, uint64_t a, uint64_t b, int scales, bool a_mn_major, bool b_mn_major, bool bf16,
                                 unsigned meta = 0, int selector = -1, In<unsigned, 4> fragment = {}) {
  meet_group("wgmma.mma_async");
  if (!me().registers_fenced) fault("wgmma.mma_async before any wgmma.fence");
  if (scales != 3) fault("wgmma.mma_async with other factors than 1");
  me().products.push_back({a, b, a_mn_major, b_mn_major, bf16, {d.to.begin(), d.to.end()}, meta, selector, fragment});
}

}  // namespace cpu

namespace ptx {

inline void wgmma_fence_sync_aligned() {
  cpu::meet_group("wgmma.fence");
  cpu::me().registers_fenced = true;
}
inline void wgmma_commit_group_sync_aligned() {
  cpu::meet_group("wgmma.commit_group");
  cpu::me().product_groups.push_back(cpu::me().products);
  cpu::me().products.clear();
}
// Whoever comes through first, when all are there, does it for all.
inline void wgmma_wait_group_sync_aligned(unsigned pending) {
  cpu::meet_group("wgmma.wait_group");
  const unsigned first = cpu::current / cpu::GROUP * cpu::GROUP;
  while (cpu::me().product_groups.size() > pending) {
    for (size_t i = 0; i < cpu::me().product_groups.front().size(); ++i) cpu::multiply(first, i);
    for (unsigned t = first; t < first + cpu::GROUP; ++t) {
      auto& groups = cpu::threads[t].product_groups;
      groups.erase(groups.begin());
    }
  }
}

// A warpgroup gives registers back to its block, or waits until others have given back as many as it takes.
inline void set_registers(unsigned count, bool more) {
  const unsigned own = std::min(65536 / cpu::block_threads / 8 * 8, 255u);
  if (count % 8 || count < 24 || count > 256 || (count > own) != more) cpu::fault("setmaxnreg of %u after %u", count, own);
  cpu::meet_group("setmaxnreg");
  if (cpu::tid() % cpu::GROUP == 0) {
    while (cpu::free_registers[cpu::rank()] + static_cast<int>(own) < static_cast<int>(count)) cpu::yield();
    cpu::free_registers[cpu::rank()] += static_cast<int>(own) - static_cast<int>(count);
    ++cpu::progress;
  }
  cpu::meet_group("setmaxnreg");
}
inline void setmaxnreg_inc_sync_aligned_u32(unsigned count) { set_registers(count, true); }
inline void setmaxnreg_dec_sync_aligned_u32(unsigned count) { set_registers(count, false); }

#define WGMMA_OF(n, T, bf16)                                                                                           \
  inline void wgmma_mma_async_sync_aligned_m64n##n##k16_f32_##T##_##T(                                                 \
      cpu::Out<float, n / 2> d, uint64_t a, uint64_t b, int scale_d, int scale_a, int scale_b, int a_turned, int b_turned) { \
    cpu::product(d, a, b, scale_d + scale_a + scale_b, a_turned, b_turned, bf16);                                      \
  }                                                                                                                    \
  inline void wgmma_mma_async_sync_aligned_m64n##n##k16_f32_##T##_##T(                                                 \
      cpu::Out<float, n / 2> d, cpu::In<unsigned, 4> a, uint64_t b, int scale_d, int scale_a, int scale_b, int b_turned) {   \
    cpu::product(d, cpu::IN_REGISTERS, b, scale_d + scale_a + scale_b, false, b_turned, bf16, 0, -1, a);               \
  }                                                                                                                    \
  inline void wgmma_mma_async_sp_sync_aligned_m64n##n##k32_f32_##T##_##T(                                              \
      cpu::Out<float, n / 2> d, uint64_t a, uint64_t b, unsigned meta, int selector, int scale_d, int scale_a, int scale_b, \
      int a_turned, int b_turned) {                                                                                    \
    cpu::product(d, a, b, scale_d + scale_a + scale_b, a_turned, b_turned, bf16, meta, selector);                      \
  }
#define WGMMA(n) WGMMA_OF(n, f16, false) WGMMA_OF(n, bf16, true)
WGMMA(8) WGMMA(16) WGMMA(24) WGMMA(32) WGMMA(40) WGMMA(48) WGMMA(56) WGMMA(64) WGMMA(72) WGMMA(80) WGMMA(88)
WGMMA(96) WGMMA(104) WGMMA(112) WGMMA(120) WGMMA(128) WGMMA(136) WGMMA(144) WGMMA(152) WGMMA(160) WGMMA(168)
WGMMA(176) WGMMA(184) WGMMA(192) WGMMA(200) WGMMA(208) WGMMA(216) WGMMA(224) WGMMA(232) WGMMA(240) WGMMA(248)
WGMMA(256)
#undef WGMMA
#undef WGMMA_OF

}  // namespace ptx
