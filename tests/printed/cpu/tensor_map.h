// Tensor maps, as this kit has them in their 128 bytes, and the copies that read them.
#pragma once
#include "memory.h"

namespace cpu {

// How a matrix lies, in bytes; columns first.  `swizzle`: 0 none, 1 of 32 bytes, 2 of 64, 3 of 128.
struct Matrix {
  uint64_t valid;
  const unsigned char* at;
  uint64_t cols, rows, pitch;
  uint32_t item, box_cols, box_rows, swizzle;
};
constexpr uint64_t VALID = 0x7265706f72706d61;

// What cuTensorMapEncodeTiled makes of these numbers; it takes what the driver takes.
inline void encode(void* map, void* matrix, int type, uint64_t cols, uint64_t rows, uint64_t pitch, uint32_t box_cols, uint32_t box_rows, int swizzle) {
  constexpr uint32_t SIZES[] = {1, 2, 4, 4, 8};
  if (type < 0 || type > 4) fault("a tensor map of type %d", type);
  const Matrix m{VALID, static_cast<const unsigned char*>(matrix), cols, rows, pitch, SIZES[type], box_cols, box_rows, static_cast<uint32_t>(swizzle)};
  const uint32_t wide = box_cols * m.item;
  if (reinterpret_cast<uintptr_t>(map) % 128) fault("a tensor map at %p", map);
  if (reinterpret_cast<uintptr_t>(matrix) % 16) fault("a tensor map of a matrix at %p", matrix);
  if (pitch % 16 || pitch >> 40) fault("a tensor map of rows %llu bytes apart", static_cast<unsigned long long>(pitch));
  if (!cols || !rows || cols >> 32 || rows >> 32) fault("a tensor map of nothing, or of too much");
  if (!box_cols || !box_rows || box_cols > 256 || box_rows > 256 || wide % 16) fault("a box of %u x %u", box_rows, box_cols);
  if (swizzle < 0 || swizzle > 3 || (swizzle && wide > 16u << swizzle)) fault("a box with rows of %u bytes and swizzle %d", wide, swizzle);
  memcpy(map, &m, sizeof m);
}

template <typename Map> Map tensor_map(void* matrix, int type, uint64_t cols, uint64_t rows, uint64_t pitch, uint32_t box_cols, uint32_t box_rows, int swizzle) {
  static_assert(sizeof(Map) == 128 && alignof(Map) == 128, "a CUtensorMap");
  Map map;
  encode(&map, matrix, type, cols, rows, pitch, box_cols, box_rows, swizzle);
  return map;
}

// The copies of a box, element by element: zeros for what lies outside.
inline void issue_box(std::vector<Copy>& list, unsigned to, const void* map, int column, int row) {
  static const uint64_t zero = 0;
  Matrix m;
  memcpy(&m, map, sizeof m);
  if (m.valid != VALID || reinterpret_cast<uintptr_t>(map) % 128) fault("cp.async.bulk.tensor: no tensor map");
  if (column * static_cast<int>(m.item) % 16) fault("cp.async.bulk.tensor: column %d is no multiple of 16 bytes", column);
  if (to % 128) fault("cp.async.bulk.tensor: shared address %u is no multiple of 128", to);
  for (int64_t r = 0; r < m.box_rows; ++r)
    for (int64_t c = 0; c < m.box_cols; ++c) {
      unsigned at = to + (r * m.box_cols + c) * m.item;
      at ^= (at >> 7 & ((1u << m.swizzle) - 1)) << 4;  // pieces of 16 bytes, by the number of the line of 128
      const int64_t y = row + r, x = column + c;
      const bool inside = y >= 0 && x >= 0 && y < static_cast<int64_t>(m.rows) && x < static_cast<int64_t>(m.cols);
      issue(list, at, inside ? m.at + y * m.pitch + x * m.item : reinterpret_cast<const unsigned char*>(&zero), m.item, m.item, "cp.async.bulk.tensor");
    }
}

}  // namespace cpu
