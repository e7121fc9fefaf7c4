// Runs launches on arrays from a file, and writes the arrays back.
//
// The file: the number of arrays and of launches; for each array its bytes and where in a multiple of 256 it begins,
// then its data; for each launch the number of its function and of its arguments, and the array of each.
#pragma once
#include <sys/resource.h>

#include "ptx.h"

namespace cpu {

struct Function {
  void (*call)();
  Index grid;
  unsigned threads, shared_bytes, cluster;
};
inline void** arguments;

constexpr size_t GUARD = 4096;  // bytes before and after an array, which nobody may write

struct Array {
  size_t nbytes, offset;
  std::unique_ptr<unsigned char[]> room;
  unsigned char* data;
};

// Room for an array, with zones around it.
inline Array room_for(size_t nbytes, size_t offset) {
  const size_t room = nbytes + 2 * GUARD + 512;
  Array a{nbytes, offset, std::make_unique<unsigned char[]>(room), nullptr};
  memset(a.room.get(), POISON, room);
  const auto start = (reinterpret_cast<uintptr_t>(a.room.get()) + GUARD + 255) / 256 * 256 + offset;
  a.data = reinterpret_cast<unsigned char*>(start);
  return a;
}

inline void untouched_around(const Array& a, size_t number) {
  for (const unsigned char* p = a.room.get(); p < a.data; ++p)
    if (*p != POISON) fault("array %zu is written before its start", number);
  for (const unsigned char* p = a.data + a.nbytes; p < a.data + a.nbytes + GUARD; ++p)
    if (*p != POISON) fault("array %zu is written behind its end", number);
}

// One of no threads runs on the host.
inline void launch(const Function& f) {
  if (!f.threads) return f.call();
  blocks = f.grid;
  cluster = f.cluster;
  body = f.call;
  shared_bytes = f.shared_bytes;
  if (shared_bytes > SHARED) fault("%u bytes of shared memory", shared_bytes);
  for (block.z = 0; block.z < blocks.z; ++block.z)
    for (block.y = 0; block.y < blocks.y; ++block.y)
      for (block.x = 0; block.x < blocks.x; block.x += cluster) {
        for (unsigned rank = 0; rank < cluster; ++rank) {
          memset(shared[rank], POISON, shared_bytes + ZONE);
          barriers[rank].clear();
        }
        run_blocks(f.threads);
        for (unsigned i = 0; i < cluster * ZONE; ++i)
          if (shared[i / ZONE][shared_bytes + i % ZONE] != POISON)
            fault("shared memory is written %u bytes beyond its end", i % ZONE);
      }
}

inline int run(const char* path, unsigned seconds, const Function* functions) {
  const rlimit limit{seconds, seconds + 1};
  setrlimit(RLIMIT_CPU, &limit);  // a program that never ends is killed
  FILE* const file = fopen(path, "rb+");
  if (!file) fault("%s cannot be opened", path);
  const auto number = [&] {
    uint64_t n = 0;
    if (fread(&n, sizeof n, 1, file) != 1) fault("%s ends too early", path);
    return static_cast<size_t>(n);
  };
  std::vector<Array> arrays(number());
  const size_t launches = number();
  for (Array& a : arrays) {
    const size_t nbytes = number(), offset = number();
    a = room_for(nbytes, offset);
    if (a.nbytes && fread(a.data, a.nbytes, 1, file) != 1) fault("%s ends too early", path);
  }
  for (size_t i = 0; i < launches; ++i) {
    const Function& f = functions[number()];
    std::vector<void*> taken(number());
    for (auto& t : taken) t = arrays.at(number()).data;
    arguments = taken.data();
    launch(f);
  }
  rewind(file);
  for (size_t i = 0; i < arrays.size(); ++i) {
    untouched_around(arrays[i], i);
    fwrite(arrays[i].data, 1, arrays[i].nbytes, file);
  }
  fclose(file);
  return 0;
}

}  // namespace cpu
