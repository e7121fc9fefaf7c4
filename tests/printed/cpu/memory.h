// Memory of a launch: shared memory of a block, and copies that are under way.
#pragma once
#include <array>
#include <deque>
#include <map>

#include "threads.h"

namespace cpu {

constexpr unsigned SHARED = 232448, ZONE = 4096;  // bytes: what a block has at most; and of the zone behind, never written
alignas(1024) inline unsigned char shared[MAX_CLUSTER][SHARED + ZONE];  // of each block of a cluster
inline unsigned shared_bytes;

// The address of a place in shared memory, as instructions take it.
inline size_t shared_address(const void* p) { return static_cast<const unsigned char*>(p) - shared[rank()]; }

// The place of `nbytes` at a shared address that is a multiple of them.
inline void* shared_place(unsigned address, unsigned nbytes, const char* what) {
  if (address % nbytes) fault("%s: shared address %u is no multiple of %u", what, address, nbytes);
  if (address + nbytes > shared_bytes) fault("%s: shared address %u lies beyond %u bytes", what, address, shared_bytes);
  return shared[rank()] + address;
}

// Addresses in the shared memory of a cluster: those of a block, and which block.
constexpr unsigned WINDOW = 1 << 24;
inline unsigned peer_address(unsigned address, unsigned rank) {
  if (rank >= cluster) fault("mapa: rank %u of %u blocks", rank, cluster);
  return address + (rank + 1) * WINDOW;
}
inline unsigned peer_of(unsigned address, const char* what) {
  const unsigned rank = address / WINDOW - 1;
  if (rank >= cluster) fault("%s: %u is no address in a cluster", what, address);
  if (rank != cpu::rank() && ended(rank)) fault("%s: the block of rank %u has ended", what, rank);
  return rank;
}


inline void issue(std::vector<Copy>& list, unsigned to, const void* from, unsigned nbytes, unsigned align, const char* what) {
  if (reinterpret_cast<uintptr_t>(from) % align) fault("%s: %p is no multiple of %u", what, from, align);
  if (to + nbytes > shared_bytes) fault("%s: shared address %u lies beyond %u bytes", what, to, shared_bytes);
  void* const place = shared_place(to, align, what);
  memset(place, POISON, nbytes);  // in flight: not to be read
  list.push_back({place, from, nbytes});
}

inline void finish(const std::vector<Copy>& list) {
  for (const Copy& c : list) memcpy(c.to, c.from, c.nbytes);
}

// An mbarrier.  Its bulk copies are made when a phase could end without them being missed, and so are copies of threads
// that arrive when these have landed: `late` of those that are pending.
struct Barrier {
  unsigned count, pending, phase = 0, late = 0;
  long bytes = 0;  // still to come in this phase
  unsigned owner = 0;    // who initialised it
  bool fenced = false;
  std::vector<Copy> copies, landing;
};
inline std::map<unsigned, Barrier> barriers[MAX_CLUSTER];  // of each block, by shared address

inline Barrier& barrier_at(unsigned address, const char* what, unsigned rank = cpu::rank()) {
  const auto found = barriers[rank].find(address);
  if (found == barriers[rank].end()) fault("%s: no mbarrier has been initialised at shared address %u", what, address);
  return found->second;
}

// A store to another block: made as late as its mbarrier, which is of the same block, allows.
inline void peer_store(unsigned to, const void* from, unsigned nbytes, unsigned bar) {
  static std::deque<std::array<unsigned char, 16>> held;
  const unsigned rank = peer_of(to, "st.async"), at = to % WINDOW;
  if (rank != peer_of(bar, "st.async")) fault("st.async: its mbarrier is of another block");
  if (at % nbytes || at + nbytes > shared_bytes) fault("st.async: %u bytes at shared address %u", nbytes, at);
  memset(shared[rank] + at, POISON, nbytes);
  memcpy(held.emplace_back().data(), from, nbytes);
  barrier_at(bar % WINDOW, "st.async", rank).copies.push_back({shared[rank] + at, held.back().data(), nbytes});
  ++progress;
}

// Ends the phase if all have arrived: the copies it waits for are made now.
inline void settle(Barrier& b) {
  if (b.pending > b.late) return;
  finish(b.landing);
  b.landing.clear();
  b.pending = b.late = 0;
  finish(b.copies);
  for (const Copy& c : b.copies) b.bytes -= c.nbytes;
  b.copies.clear();
  if (b.bytes < 0) fault("an mbarrier got %ld bytes more than it expects", -b.bytes);
  if (b.bytes) return;
  b.phase ^= 1;
  b.pending = b.count;
  ++progress;
}

}  // namespace cpu

#define __cvta_generic_to_shared(p) cpu::shared_address(p)
