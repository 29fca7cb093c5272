// Peer: CUB's DeviceScan on long 1-D sequences, f32.
// Prints one JSON line per case: median milliseconds over 50 runs, each after the L2 cache was flushed.
// Build: nvcc -O3 -std=c++17 --extended-lambda -arch=sm_90 cub_scan.cu -o cub_scan
#include <cub/cub.cuh>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                     \
  do {                                                                                  \
    cudaError_t status = (call);                                                        \
    if (status != cudaSuccess) {                                                        \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status));              \
      std::exit(1);                                                                     \
    }                                                                                   \
  } while (0)

struct Affine {
  __host__ __device__ float2 operator()(float2 l, float2 r) const {
    return make_float2(l.x * r.x, r.x * l.y + r.y);
  }
};

// Reads a and b from two arrays and writes only h: the traffic an SSM user cares about.
struct ZipLoad {
  using value_type = float2;
  using difference_type = ptrdiff_t;
  using pointer = float2*;
  using reference = float2;
  using iterator_category = std::random_access_iterator_tag;
  const float *a, *b;
  __host__ __device__ float2 operator[](ptrdiff_t i) const { return make_float2(a[i], b[i]); }
  __host__ __device__ float2 operator*() const { return make_float2(*a, *b); }
  __host__ __device__ ZipLoad operator+(ptrdiff_t i) const { return {a + i, b + i}; }
  __host__ __device__ ZipLoad& operator+=(ptrdiff_t i) { a += i; b += i; return *this; }
  __host__ __device__ bool operator==(const ZipLoad& o) const { return a == o.a; }
  __host__ __device__ bool operator!=(const ZipLoad& o) const { return a != o.a; }
};
struct SecondRef {
  float* h;
  __host__ __device__ SecondRef& operator=(float2 v) { *h = v.y; return *this; }
};
struct SecondStore {
  using value_type = void;
  using difference_type = ptrdiff_t;
  using pointer = void;
  using reference = SecondRef;
  using iterator_category = std::random_access_iterator_tag;
  float* h;
  __host__ __device__ SecondRef operator[](ptrdiff_t i) const { return {h + i}; }
  __host__ __device__ SecondRef operator*() const { return {h}; }
  __host__ __device__ SecondStore operator+(ptrdiff_t i) const { return {h + i}; }
  __host__ __device__ SecondStore& operator+=(ptrdiff_t i) { h += i; return *this; }
};

template <class F>
float median_ms(F&& launch, void* flush, size_t flush_bytes) {
  cudaEvent_t start, stop;
  CHECK(cudaEventCreate(&start));
  CHECK(cudaEventCreate(&stop));
  std::vector<float> times;
  for (int i = 0; i < 60; ++i) {
    CHECK(cudaMemsetAsync(flush, i, flush_bytes));
    CHECK(cudaEventRecord(start));
    launch();
    CHECK(cudaEventRecord(stop));
    CHECK(cudaEventSynchronize(stop));
    float ms;
    CHECK(cudaEventElapsedTime(&ms, start, stop));
    if (i >= 10) times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

__global__ void fill(float* p, size_t n, float lo, float hi) {
  size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x;
  if (i < n) {
    unsigned v = unsigned(i) * 2654435761u;
    v ^= v >> 16; v *= 2246822519u; v ^= v >> 13;
    p[i] = lo + (hi - lo) * (v * (1.0f / 4294967296.0f));
  }
}

int main() {
  const size_t flush_bytes = 256u << 20;
  void* flush;
  CHECK(cudaMalloc(&flush, flush_bytes));
  for (int log2n : {20, 25, 28}) {
    size_t n = size_t(1) << log2n;
    float *a, *b, *h;
    CHECK(cudaMalloc(&a, n * 4));
    CHECK(cudaMalloc(&b, n * 4));
    CHECK(cudaMalloc(&h, n * 4));
    fill<<<unsigned((n + 255) / 256), 256>>>(a, n, 0.5f, 1.0f);
    fill<<<unsigned((n + 255) / 256), 256>>>(b, n, -1.0f, 1.0f);
    CHECK(cudaDeviceSynchronize());

    float copy = median_ms([&] { CHECK(cudaMemcpyAsync(h, b, n * 4, cudaMemcpyDeviceToDevice)); }, flush, flush_bytes);
    std::printf("{\"case\": \"copy-f32-2^%d\", \"peer\": \"CUDA\", \"ms\": %.5f, \"bytes\": %zu}\n", log2n, copy, n * 8);

    void* temp = nullptr;
    size_t temp_bytes = 0;
    CHECK(cub::DeviceScan::InclusiveSum(nullptr, temp_bytes, b, h, n));
    CHECK(cudaMalloc(&temp, temp_bytes));
    float sum = median_ms([&] { CHECK(cub::DeviceScan::InclusiveSum(temp, temp_bytes, b, h, n)); }, flush, flush_bytes);
    std::printf("{\"case\": \"cumsum-f32-2^%d\", \"peer\": \"CUB\", \"ms\": %.5f, \"bytes\": %zu}\n", log2n, sum, n * 8);
    CHECK(cudaFree(temp));

    temp = nullptr;
    temp_bytes = 0;
    ZipLoad in{a, b};
    SecondStore out{h};
    CHECK(cub::DeviceScan::InclusiveScan(nullptr, temp_bytes, in, out, Affine{}, n));
    CHECK(cudaMalloc(&temp, temp_bytes));
    float affine = median_ms([&] { CHECK(cub::DeviceScan::InclusiveScan(temp, temp_bytes, in, out, Affine{}, n)); }, flush, flush_bytes);
    std::printf("{\"case\": \"affine-f32-2^%d\", \"peer\": \"CUB\", \"ms\": %.5f, \"bytes\": %zu}\n", log2n, affine, n * 12);
    CHECK(cudaFree(temp));

    // The same scan on packed pairs: CUB's own vectorised loads, at the price of 16 bytes moved per element instead of 12.
    float2 *pairs, *states;
    CHECK(cudaMalloc(&pairs, n * 8));
    CHECK(cudaMalloc(&states, n * 8));
    fill<<<unsigned((2 * n + 255) / 256), 256>>>(reinterpret_cast<float*>(pairs), 2 * n, 0.5f, 1.0f);
    temp = nullptr;
    temp_bytes = 0;
    CHECK(cub::DeviceScan::InclusiveScan(nullptr, temp_bytes, pairs, states, Affine{}, n));
    CHECK(cudaMalloc(&temp, temp_bytes));
    float packed = median_ms([&] { CHECK(cub::DeviceScan::InclusiveScan(temp, temp_bytes, pairs, states, Affine{}, n)); }, flush, flush_bytes);
    std::printf("{\"case\": \"affine-f32-2^%d\", \"peer\": \"CUB\", \"ms\": %.5f, \"bytes\": %zu}\n", log2n, packed, n * 12);
    CHECK(cudaFree(temp));
    CHECK(cudaFree(pairs));
    CHECK(cudaFree(states));
    CHECK(cudaFree(a));
    CHECK(cudaFree(b));
    CHECK(cudaFree(h));
  }
  return 0;
}
