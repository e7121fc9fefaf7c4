// Heat from one hot cell, by the kernel that export_heat.py writes; no Python runs.
//
//   python export_heat.py
//   nvcc -std=c++17 -arch=native main.cpp heat.cu -o heat && ./heat
#include <cstdio>
#include <cuda_runtime.h>
#include <vector>

#include "heat.h"

#define CHECK(call)                                                             \
  do {                                                                          \
    const cudaError_t error = static_cast<cudaError_t>(call);                   \
    if (error != cudaSuccess) {                                                 \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));       \
      return 1;                                                                 \
    }                                                                           \
  } while (0)

int main() {
  const size_t rows = 48, cols = 64, cells = rows * cols, space = heat_workspace_bytes();
  std::vector<double> u(cells, 0.0);
  u[rows / 2 * cols + cols / 2] = 1000.0;

  double *in = nullptr, *out = nullptr;
  void* workspace = nullptr;
  CHECK(cudaMalloc(&in, cells * sizeof(double)));
  CHECK(cudaMalloc(&out, cells * sizeof(double)));
  if (space) CHECK(cudaMalloc(&workspace, space));

  CHECK(cudaMemcpy(in, u.data(), cells * sizeof(double), cudaMemcpyHostToDevice));
  CHECK(heat_run(in, out, workspace, nullptr));  // all 11 time steps, on the default stream
  CHECK(cudaMemcpy(u.data(), out, cells * sizeof(double), cudaMemcpyDeviceToHost));

  double sum = 0;
  for (const double x : u) sum += x;
  std::printf("in the middle %.9f, in all %.9f\n", u[rows / 2 * cols + cols / 2], sum);

  CHECK(cudaFree(in));
  CHECK(cudaFree(out));
  CHECK(cudaFree(workspace));
  return 0;
}
