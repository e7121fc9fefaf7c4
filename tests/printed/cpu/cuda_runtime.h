// CUDA's runtime, as far as exported files and programs that call them use it; launches run at once.
#pragma once
#include <list>

#include "start.h"

#define CUDART_VERSION 13000
enum cudaError_t { cudaSuccess, cudaErrorInvalidValue, cudaErrorInsufficientDriver = 35 };
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess, cudaDriverEntryPointSymbolNotFound };
constexpr unsigned long long cudaEnableDefault = 0;
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
typedef struct CUstream_st* cudaStream_t;
struct dim3 : cpu::Index {
  dim3(unsigned x, unsigned y, unsigned z) : Index{x, y, z} {}
};

namespace cpu {
inline std::list<Array> allocated;
inline std::map<const void*, unsigned> most_shared;  // of a function, as it was asked for

// The array that holds a place and `nbytes` from there on.
inline std::list<Array>::iterator found(const void* place, size_t nbytes, const char* what) {
  for (auto a = allocated.begin(); a != allocated.end(); ++a)
    if (place >= a->data && static_cast<const unsigned char*>(place) + nbytes <= a->data + a->nbytes) return a;
  fault("%s: %zu bytes at %p are not in memory of the device", what, nbytes, place);
}

template <typename F, typename Body> void start(F* function, unsigned cluster, dim3 grid, unsigned threads, unsigned nbytes, Body run) {
  constexpr unsigned FREE = 48 << 10;  // what a kernel may have without being asked
  if (nbytes > FREE && most_shared[reinterpret_cast<const void*>(function)] < nbytes) fault("%u bytes of shared memory", nbytes);
  static Body* now;
  now = &run;
  launch({[] { (*now)(); }, grid, threads, nbytes, cluster});
}
}  // namespace cpu

template <typename T> cudaError_t cudaMalloc(T** place, size_t nbytes) {
  cpu::allocated.push_back(cpu::room_for(nbytes, 0));
  *place = reinterpret_cast<T*>(cpu::allocated.back().data);
  return cudaSuccess;
}
inline cudaError_t cudaFree(void* place) {
  if (!place) return cudaSuccess;
  const auto a = cpu::found(place, 0, "cudaFree");
  cpu::untouched_around(*a, 0);
  cpu::allocated.erase(a);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t nbytes, cudaMemcpyKind kind) {
  cpu::found(kind == cudaMemcpyHostToDevice ? to : from, nbytes, "cudaMemcpy");
  memcpy(to, from, nbytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t nbytes, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy(to, from, nbytes, kind);
}
inline cudaError_t cudaMemsetAsync(void* place, int value, size_t nbytes, cudaStream_t) {
  cpu::found(place, nbytes, "cudaMemsetAsync");
  memset(place, value, nbytes);
  return cudaSuccess;
}
template <typename T> cudaError_t cudaGetSymbolAddress(void** place, const T& symbol) {
  *place = const_cast<void*>(static_cast<const void*>(&symbol));
  return cudaSuccess;
}
template <typename F> cudaError_t cudaFuncSetAttribute(F* function, cudaFuncAttribute, unsigned nbytes) {
  if (nbytes > cpu::SHARED) return cudaErrorInvalidValue;
  cpu::most_shared[reinterpret_cast<const void*>(function)] = nbytes;
  return cudaSuccess;
}
// The driver's functions by name: tensor maps as this kit reads them.
inline int encode_tiled(void* map, int type, uint32_t rank, void* matrix, const uint64_t* extents, const uint64_t* pitch, const uint32_t* box,
                        const uint32_t* steps, int interleave, int swizzle, int promotion, int fill) {
  if (rank != 2 || steps[0] != 1 || steps[1] != 1 || interleave || fill || promotion < 0 || promotion > 3) return 1;
  cpu::encode(map, matrix, type, extents[0], extents[1], pitch[0], box[0], box[1], swizzle);
  return 0;
}
inline cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version, unsigned long long, cudaDriverEntryPointQueryResult* result) {
  const bool known = !strcmp(name, "cuTensorMapEncodeTiled") && version >= 12000;
  *function = known ? reinterpret_cast<void*>(encode_tiled) : nullptr;
  *result = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
// Launches with attributes: of those only that all blocks run at the same time.
enum cudaLaunchAttributeID { cudaLaunchAttributeNone, cudaLaunchAttributeCooperative };
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct { int cooperative; } val;
};
struct cudaLaunchConfig_t {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
  const cudaLaunchAttribute* attributes;
  unsigned count;
};
template <typename... P, typename... A> cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* how, void (*kernel)(P...), A... args) {
  if (how->count != 1 || how->attributes->id != cudaLaunchAttributeCooperative || !how->attributes->val.cooperative)
    return cudaErrorInvalidValue;
  const unsigned blocks = how->grid.x * how->grid.y * how->grid.z;
  cpu::start(kernel, blocks, how->grid, how->block.x, how->shared, [&] { kernel(args...); });
  return cudaSuccess;
}
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline const char* cudaGetErrorString(cudaError_t e) { return e ? "invalid argument" : "no error"; }
