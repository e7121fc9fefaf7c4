// Threads of a cluster of blocks (mostly one) as fibers: each runs until it must wait for others, then the next one runs.
//
// Whoever waits for something that can no longer happen has found a deadlock; it ends the program with a message.
#pragma once
#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <ucontext.h>
#include <vector>

namespace cpu {

// Ends the program: what was printed does what no GPU allows.
[[noreturn]] inline void fault(const char* format, ...) {
  va_list args;
  va_start(args, format);
  vfprintf(stderr, format, args);
  va_end(args);
  fputc('\n', stderr);
  exit(3);
}

struct Index { unsigned x, y, z; };

// One asynchronous copy that has been issued; it is made as late as its wait allows.
struct Copy { void* to; const void* from; unsigned nbytes; };

// A product that a warpgroup has issued: descriptors of its operands, and the thread's sums; of a sparse one the thread's
// metadata, and which threads' count (of another -1); of one with a in registers (and no descriptor of it) the thread's.
struct Product {
  uint64_t a, b;
  bool a_mn_major, b_mn_major, bf16;
  std::vector<float*> sums;
  unsigned meta = 0;
  int selector = -1;
  std::array<unsigned, 4> fragment = {};
};

struct Thread {
  ucontext_t first;
  jmp_buf at;
  std::unique_ptr<char[]> stack;
  bool started = false, done = false;
  unsigned index = 0, exchanges = 0;
  std::vector<Copy> open;                 // cp.async since the last commit
  std::vector<std::vector<Copy>> groups;  // committed, oldest first
  std::vector<Product> products;          // since the last commit
  std::vector<std::vector<Product>> product_groups;
  bool registers_fenced = false;
  unsigned long cluster_turn = 0;         // that of its last arrival at the cluster's barrier
};

// Where `size` threads meet; `what` names the instruction, which must be the same one for all.
struct Meeting {
  unsigned here = 0;
  unsigned long turn = 0;
  const char* what = nullptr;
};

constexpr unsigned WARP = 32, MAX_WARPS = 32, MAX_CLUSTER = 8, STACK = 1 << 17;
constexpr unsigned PATIENCE = 256;  // rounds without progress: a thread asks for some cells of others one by one
constexpr unsigned POISON = 0xff;  // bytes that nobody has written: NaN, or -1

inline std::vector<Thread> threads;
inline unsigned current, block_threads, live;
inline unsigned long progress, idle;
inline unsigned cluster;     // blocks of one
inline Index block, blocks;  // the first of those that run
inline jmp_buf scheduler;
inline Meeting cluster_meeting, block_meeting[MAX_CLUSTER], warp_meeting[MAX_CLUSTER * MAX_WARPS];
inline Meeting group_meeting[MAX_CLUSTER * MAX_WARPS], named_meeting[MAX_CLUSTER][16];
inline int free_registers[MAX_CLUSTER];  // of each block, for a lane of a warpgroup
inline void (*body)();

inline Thread& me() { return threads[current]; }
inline unsigned rank() { return current / block_threads; }
inline unsigned tid() { return current % block_threads; }
inline unsigned warp() { return rank() * MAX_WARPS + tid() / WARP; }
inline unsigned lane() { return tid() % WARP; }
inline unsigned lanes() { return std::min(block_threads - tid() / WARP * WARP, WARP); }
inline Index own_block() { return {block.x + rank(), block.y, block.z}; }
inline bool ended(unsigned rank) {
  for (unsigned i = 0; i < block_threads; ++i)
    if (!threads[rank * block_threads + i].done) return false;
  return true;
}

// The next thread runs; returns when it is this one's turn again.
__attribute__((noinline)) inline void yield() {
  if (!_setjmp(me().at)) _longjmp(scheduler, 1);
}

inline void meet(Meeting& m, unsigned size, const char* what) {
  if (m.here == 0) m.what = what;
  if (strcmp(m.what, what)) fault("thread %u meets others in %s, they are in %s", current, what, m.what);
  const unsigned long turn = m.turn;
  ++progress;
  if (++m.here == size) {
    m.here = 0;
    ++m.turn;
    return;
  }
  while (m.turn == turn) yield();
}

inline void meet_warp(const char* what) { meet(warp_meeting[warp()], lanes(), what); }

// What each lane of the warp brings, seen by all of them.  Two sets of places take turns: a lane can be one exchange
// ahead of another, not two.
template <typename T> struct Exchange {
  const T* values;
  const T& of(unsigned lane) const { return values[lane]; }
};
inline unsigned char places[MAX_CLUSTER * MAX_WARPS][2][WARP * 128];

template <typename T> Exchange<T> exchange(const T& mine, const char* what) {
  static_assert(sizeof(T) <= 128, "a lane brings at most 128 bytes");
  T* const at = reinterpret_cast<T*>(places[warp()][me().exchanges++ % 2]);
  memcpy(static_cast<void*>(at + lane()), &mine, sizeof mine);
  meet_warp(what);
  return {at};
}

inline void enter() {
  body();
  me().done = true;
  --live;
  ++progress;
  _longjmp(scheduler, 1);
}

inline unsigned next_random() {
  static uint64_t state = 1;
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return static_cast<unsigned>(state >> 33);
}

// Runs all threads of a cluster, in another order each round.
inline void run_blocks(unsigned each) {
  static unsigned count;
  block_threads = each;
  count = live = each * cluster;
  if (threads.size() < count) threads.resize(count);
  cluster_meeting = Meeting();
  for (int& n : free_registers) n = 0;
  for (auto& m : block_meeting) m = Meeting();
  for (auto& m : warp_meeting) m = Meeting();
  for (auto& m : group_meeting) m = Meeting();
  for (auto& each : named_meeting)
    for (auto& m : each) m = Meeting();
  for (unsigned i = 0; i < count; ++i) {
    Thread& t = threads[i];
    t.started = t.done = false;
    t.index = i;
    t.exchanges = 0;
    t.open.clear();
    t.groups.clear();
    t.products.clear();
    t.product_groups.clear();
    t.registers_fenced = false;
    if (!t.stack) t.stack = std::make_unique<char[]>(STACK);
  }
  static unsigned i, round, seen;
  static unsigned long before;
  for (idle = 0; live; ) {
    before = progress;
    seen = next_random();
    for (round = 0; round < count; ++round) {
      i = (seen & 1 ? count - 1 - round : round) ^ (count % 32 == 0 ? (seen >> 1) % 32 : 0);
      if (threads[i].done) continue;
      current = i;
      if (_setjmp(scheduler)) continue;
      if (threads[i].started) _longjmp(threads[i].at, 1);
      threads[i].started = true;
      getcontext(&threads[i].first);
      threads[i].first.uc_stack.ss_sp = threads[i].stack.get();
      threads[i].first.uc_stack.ss_size = STACK;
      threads[i].first.uc_link = nullptr;
      makecontext(&threads[i].first, enter, 0);
      setcontext(&threads[i].first);
    }
    idle = progress == before ? idle + 1 : 0;
    if (idle > PATIENCE) fault("deadlock: %u threads wait for what cannot happen", live);
  }
}

}  // namespace cpu

#define threadIdx (cpu::Index{cpu::tid(), 0, 0})
#define blockIdx cpu::own_block()
#define __syncthreads() cpu::meet(cpu::block_meeting[cpu::rank()], cpu::block_threads, "__syncthreads")
#define __syncwarp() cpu::meet_warp("__syncwarp")
#define __threadfence() ((void)0)
#define __threadfence_block() ((void)0)
