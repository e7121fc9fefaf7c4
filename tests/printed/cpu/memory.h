// Memory of a launch: shared memory of a block, and copies that are under way.
#pragma once
#include <map>

#include "threads.h"

namespace cpu {

constexpr unsigned SHARED = 232448, ZONE = 4096;  // bytes: what a block has at most; and of the zone behind, never written
alignas(1024) inline unsigned char shared[SHARED + ZONE];
inline unsigned shared_bytes;

// The address of a place in shared memory, as instructions take it.
inline size_t shared_address(const void* p) { return static_cast<const unsigned char*>(p) - shared; }

// The place of `nbytes` at a shared address that is a multiple of them.
inline void* shared_place(unsigned address, unsigned nbytes, const char* what) {
  if (address % nbytes) fault("%s: shared address %u is no multiple of %u", what, address, nbytes);
  if (address + nbytes > shared_bytes) fault("%s: shared address %u lies beyond %u bytes", what, address, shared_bytes);
  return shared + address;
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
inline std::map<unsigned, Barrier> barriers;  // by shared address

inline Barrier& barrier_at(unsigned address, const char* what) {
  const auto found = barriers.find(address);
  if (found == barriers.end()) fault("%s: no mbarrier has been initialised at shared address %u", what, address);
  return found->second;
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
