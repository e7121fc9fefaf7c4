// What the PTX instructions mean that the printer writes: one function each, named as the instruction.
#pragma once
#include "intrinsics.h"
#include "memory.h"
#include "mma.h"
#include "tensor_map.h"
#include "wgmma.h"

namespace ptx {

struct Sink {} inline _;

// ---------------------------------------------------------------------------------------------- scalars
inline void prmt_b32(unsigned& d, unsigned a, unsigned b, unsigned sel) {
  d = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned nibble = sel >> 4 * i & 15, word = nibble & 4 ? b : a;
    unsigned byte = word >> 8 * (nibble & 3) & 0xff;
    if (nibble & 8) byte = byte & 0x80 ? 0xff : 0;
    d |= byte << 8 * i;
  }
}
inline void mov_b32(unsigned& d, cpu::In<unsigned short, 2> halves) { d = halves[0] | static_cast<unsigned>(halves[1]) << 16; }
inline void mov_u64(unsigned long long& d, unsigned long long a) { d = a; }
inline void add_u32(unsigned& d, unsigned a, unsigned b) { d = a + b; }
inline void shfl_sync_up_b32(unsigned& d, bool& p, unsigned a, unsigned by, unsigned, int) {
  p = cpu::lane() >= by;
  d = cpu::exchange(a, "shfl.sync.up").of(p ? cpu::lane() - by : cpu::lane());
}
inline void selp_u32(unsigned& d, unsigned a, unsigned b, bool p) { d = p ? a : b; }
inline void cvt_rna_tf32_f32(unsigned& d, float a) {  // to 10 bits of mantissa, ties away from zero
  const unsigned bits = __float_as_uint(a);
  d = std::isfinite(a) ? (bits + 0x1000) & ~0x1fffu : std::isnan(a) ? 0x7fffffffu : bits;
}
inline void add_rn_f16x2(unsigned& d, unsigned a, unsigned b) {
  d = 0;
  for (int i = 0; i < 2; ++i) {
    const __half x = __ushort_as_half(static_cast<unsigned short>(a >> 16 * i));
    const __half y = __ushort_as_half(static_cast<unsigned short>(b >> 16 * i));
    d |= static_cast<unsigned>(__half_as_ushort(x + y)) << 16 * i;
  }
}
inline void cvt_rn_f16x2_e4m3x2(unsigned& d, unsigned short a) {  // by the definition of e4m3: no infinities, bias 7
  d = 0;
  for (int i = 0; i < 2; ++i) {
    const int byte = a >> 8 * i & 0xff, e = byte >> 3 & 15, m = byte & 7;
    const double size = e ? std::ldexp(8 + m, e - 10) : std::ldexp(m, -9);
    const double value = (byte & 0x7f) == 0x7f ? std::nan("") : byte & 0x80 ? -size : size;
    d |= static_cast<unsigned>(__half(__half::of(value)).bits) << 16 * i;
  }
}
inline void ex2_approx_ftz_f32(float& d, float a) {  // subnormal results are 0
  d = std::exp2(a);
  if (d < 0x1p-126f) d = 0;
}
inline unsigned long long special_clock64() {
  static unsigned long long reads = 0;
  return ++reads;
}

// ---------------------------------------------------------------------------------------------- copies
template <unsigned n> void copy(unsigned to, const void* from, unsigned nbytes) {
  if (nbytes != n) cpu::fault("cp.async of %u bytes", nbytes);
  cpu::issue(cpu::me().open, to, from, n, n, "cp.async");
}
inline void cp_async_cg_shared_global(unsigned to, const void* from, unsigned nbytes) { copy<16>(to, from, nbytes); }
inline void cp_async_ca_shared_global(unsigned to, const void* from, unsigned nbytes) {
  if (nbytes == 4) copy<4>(to, from, nbytes);
  else if (nbytes == 8) copy<8>(to, from, nbytes);
  else copy<16>(to, from, nbytes);
}
inline void cp_async_commit_group() {
  cpu::me().groups.push_back(cpu::me().open);
  cpu::me().open.clear();
}
inline void cp_async_wait_group(unsigned pending) {
  auto& groups = cpu::me().groups;
  while (groups.size() > pending) {
    cpu::finish(groups.front());
    groups.erase(groups.begin());
  }
}
inline void cp_async_bulk_shared__cluster_global_mbarrier__complete_tx__bytes(
    unsigned to, const void* from, unsigned nbytes, unsigned bar) {
  cpu::Barrier& b = cpu::barrier_at(bar, "cp.async.bulk");
  if (!b.fenced) cpu::fault("cp.async.bulk: its mbarrier was initialised without a fence.mbarrier_init after it");
  if (nbytes % 16) cpu::fault("cp.async.bulk of %u bytes", nbytes);
  cpu::issue(b.copies, to, from, nbytes, 16, "cp.async.bulk");
}
inline void cp_async_bulk_tensor_2d_shared__cluster_global_mbarrier__complete_tx__bytes(
    unsigned to, const void* map, cpu::In<int, 2> at, unsigned bar) {
  cpu::Barrier& b = cpu::barrier_at(bar, "cp.async.bulk.tensor");
  if (!b.fenced) cpu::fault("cp.async.bulk.tensor: its mbarrier was initialised without a fence.mbarrier_init after it");
  cpu::issue_box(b.copies, to, map, at[0], at[1]);
}
template <size_t n, bool trans> void matrices(cpu::Out<unsigned, n> d, unsigned row, const char* what) {
  const auto rows = cpu::exchange(row, what);  // lanes 8 i .. 8 i + 7 have the rows of matrix i
  for (size_t i = 0; i < n; ++i) {
    *d.to[i] = 0;
    for (unsigned e = 0; e < 2; ++e) {
      const unsigned r = trans ? 2 * (cpu::lane() % 4) + e : cpu::lane() / 4, c = trans ? cpu::lane() / 4 : 2 * (cpu::lane() % 4) + e;
      const auto* const at = static_cast<const uint16_t*>(cpu::shared_place(rows.of(8 * i + r), 16, what));
      *d.to[i] |= static_cast<unsigned>(at[c]) << 16 * e;
    }
  }
}
inline void griddepcontrol_launch_dependents() {}  // a launch ends before the next one begins
inline void griddepcontrol_wait() {}
inline void movmatrix_sync_aligned_m8n8_trans_b16(unsigned& d, unsigned a) {
  const auto rows = cpu::exchange(a, "movmatrix");
  d = 0;
  for (unsigned e = 0; e < 2; ++e) {
    const unsigned r = 2 * (cpu::lane() % 4) + e, c = cpu::lane() / 4;
    d |= (rows.of(4 * r + c / 2) >> 16 * (c % 2) & 0xffff) << 16 * e;
  }
}
#define LDMATRIX(n)                                                                                             \
  inline void ldmatrix_sync_aligned_m8n8_x##n##_shared_b16(cpu::Out<unsigned, n> d, unsigned row) {             \
    matrices<n, false>(d, row, "ldmatrix.x" #n);                                                                \
  }                                                                                                             \
  inline void ldmatrix_sync_aligned_m8n8_x##n##_trans_shared_b16(cpu::Out<unsigned, n> d, unsigned row) {       \
    matrices<n, true>(d, row, "ldmatrix.x" #n ".trans");                                                        \
  }
LDMATRIX(1) LDMATRIX(2) LDMATRIX(4)
#undef LDMATRIX

// ---------------------------------------------------------------------------------------------- order
inline void bar_sync(unsigned id, unsigned count) {
  if (id > 15 || count % cpu::WARP || count > cpu::block_threads) cpu::fault("bar.sync %u, %u", id, count);
  cpu::meet(id ? cpu::named_meeting[cpu::rank()][id] : cpu::block_meeting[cpu::rank()], count, id ? "bar.sync" : "__syncthreads");
}
inline void fence_proxy_async_shared__cta() {}
inline void fence_mbarrier_init_release_cluster() {
  for (auto& [address, b] : cpu::barriers[cpu::rank()]) b.fenced |= b.owner == cpu::current;
}
inline void mbarrier_init_shared__cta_b64(unsigned bar, unsigned count) {
  cpu::shared_place(bar, 8, "mbarrier.init");
  cpu::Barrier b{count, count};
  b.owner = cpu::current;
  cpu::barriers[cpu::rank()][bar] = b;
}
inline void arrive(cpu::Barrier& b, unsigned expect) {
  cpu::settle(b);
  if (b.pending == b.late) cpu::fault("mbarrier.arrive: the phase before still waits for %ld bytes", b.bytes);
  b.bytes += expect;
  --b.pending;
  ++cpu::progress;
}
inline void mbarrier_arrive_shared__cta_b64(Sink, unsigned bar) { arrive(cpu::barrier_at(bar, "mbarrier.arrive"), 0); }
inline void mbarrier_arrive_expect_tx_shared__cta_b64(Sink, unsigned bar, unsigned nbytes) {
  arrive(cpu::barrier_at(bar, "mbarrier.arrive"), nbytes);
}
// The arrival comes when all cp.async that the thread has started have landed: as late as the phase allows.  Without
// `noinc` the phase waits for one arrival more.
inline void arrive_later(unsigned bar, unsigned more) {
  cpu::Barrier& b = cpu::barrier_at(bar, "cp.async.mbarrier.arrive");
  cpu::settle(b);
  b.pending += more;
  if (b.pending == b.late) cpu::fault("cp.async.mbarrier.arrive: the phase before still waits for %ld bytes", b.bytes);
  ++b.late;
  auto& mine = cpu::me();
  mine.groups.push_back(std::move(mine.open));
  for (const auto& group : mine.groups) b.landing.insert(b.landing.end(), group.begin(), group.end());
  mine.groups.clear();
  mine.open.clear();
  ++cpu::progress;
}
inline void cp_async_mbarrier_arrive_noinc_shared__cta_b64(unsigned bar) { arrive_later(bar, 0); }
inline void cp_async_mbarrier_arrive_shared__cta_b64(unsigned bar) { arrive_later(bar, 1); }
inline void mbarrier_try_wait_parity_shared__cta_b64(bool& p, unsigned bar, unsigned parity) {
  cpu::Barrier& b = cpu::barrier_at(bar, "mbarrier.try_wait");
  cpu::settle(b);
  p = b.phase != parity;
  if (!p) cpu::yield();
}
inline void mbarrier_test_wait_parity_shared__cta_b64(bool& p, unsigned bar, unsigned parity) {
  mbarrier_try_wait_parity_shared__cta_b64(p, bar, parity);
}

// ---------------------------------------------------------------------------------- cells of blocks that run together
inline void mov_b64(unsigned long long& q, cpu::In<unsigned, 2> parts) {
  q = parts[0] | static_cast<unsigned long long>(parts[1]) << 32;
}
inline void mov_b64(cpu::Out<unsigned, 2> parts, unsigned long long q) {
  *parts.to[0] = static_cast<unsigned>(q);
  *parts.to[1] = static_cast<unsigned>(q >> 32);
}
inline void mov_b128(unsigned __int128& q, cpu::In<unsigned long long, 2> parts) {
  q = parts[0] | static_cast<unsigned __int128>(parts[1]) << 64;
}
inline void mov_b128(cpu::Out<unsigned long long, 2> parts, unsigned __int128 q) {
  *parts.to[0] = static_cast<unsigned long long>(q);
  *parts.to[1] = static_cast<unsigned long long>(q >> 64);
}
// Who asks lets the others run first: it may be waiting for what one of them has yet to store.
template <typename Word> void ask(Word& q, const void* cell) {
  if (reinterpret_cast<uintptr_t>(cell) % sizeof q) cpu::fault("ld.relaxed: %p is no multiple of %zu", cell, sizeof q);
  cpu::yield();
  memcpy(&q, cell, sizeof q);
}
template <typename Word> void tell(void* cell, Word q) {
  if (reinterpret_cast<uintptr_t>(cell) % sizeof q) cpu::fault("st.relaxed: %p is no multiple of %zu", cell, sizeof q);
  memcpy(cell, &q, sizeof q);
  ++cpu::progress;
}
inline void setp_ne_b32(bool& p, int a, int b) { p = a != b; }
inline void ld_relaxed_gpu_global_b64(unsigned long long& q, const void* cell) { ask(q, cell); }
inline void ld_relaxed_gpu_global_b128(unsigned __int128& q, const void* cell) { ask(q, cell); }
inline void st_relaxed_gpu_global_b64(void* cell, unsigned long long q) { tell(cell, q); }
inline void st_relaxed_gpu_global_b128(void* cell, unsigned __int128 q) { tell(cell, q); }
inline void ld_relaxed_sys_global_b64(unsigned long long& q, const void* cell) { ask(q, cell); }
inline void ld_relaxed_sys_global_b128(unsigned __int128& q, const void* cell) { ask(q, cell); }
inline void st_relaxed_sys_global_b64(void* cell, unsigned long long q) { tell(cell, q); }
inline void st_relaxed_sys_global_b128(void* cell, unsigned __int128 q) { tell(cell, q); }
inline void trap() { cpu::fault("a trap"); }

// ---------------------------------------------------------------------------------------------- clusters
inline void barrier_cluster_arrive_release_aligned() {
  auto& m = cpu::cluster_meeting;
  cpu::me().cluster_turn = m.turn;
  ++cpu::progress;
  if (++m.here < cpu::block_threads * cpu::cluster) return;
  m.here = 0;
  ++m.turn;
}
inline void barrier_cluster_wait_acquire_aligned() {
  while (cpu::cluster_meeting.turn == cpu::me().cluster_turn) cpu::yield();
}
inline void mapa_shared__cluster_u32(unsigned& d, unsigned own, unsigned rank) { d = cpu::peer_address(own, rank); }
inline void st_async_shared__cluster_mbarrier__complete_tx__bytes_b32(unsigned to, unsigned v, unsigned bar) {
  cpu::peer_store(to, &v, 4, bar);
}
inline void st_async_shared__cluster_mbarrier__complete_tx__bytes_v2_b32(unsigned to, cpu::In<unsigned, 2> v, unsigned bar) {
  cpu::peer_store(to, v.data(), 8, bar);
}
inline void st_async_shared__cluster_mbarrier__complete_tx__bytes_v4_b32(unsigned to, cpu::In<unsigned, 4> v, unsigned bar) {
  cpu::peer_store(to, v.data(), 16, bar);
}
inline void mbarrier_arrive_release_cluster_shared__cluster_b64(Sink, unsigned bar) {
  const unsigned rank = cpu::peer_of(bar, "mbarrier.arrive");
  arrive(cpu::barrier_at(bar % cpu::WINDOW, "mbarrier.arrive", rank), 0);
}
inline void mbarrier_try_wait_parity_acquire_cluster_shared__cta_b64(bool& p, unsigned bar, unsigned parity) {
  mbarrier_try_wait_parity_shared__cta_b64(p, bar, parity);
}

}  // namespace ptx
