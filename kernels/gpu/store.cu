// store: out[i] = data[i], data known to the host when the kernel is queued (a tensor of the plan: shapes,
// small constants). The bytes travel as a kernel parameter, so that nothing is read from the host later and a
// recorded step holds them.
#include "kernels/gpu/kernels.h"
#include "kernels/gpu/workspace.h"

namespace gradloom::kernels::gpu {
namespace {

constexpr int kThreads = 256;

struct Chunk {
  unsigned char bytes[kStoreChunk];
};

__global__ void store_kernel(Chunk chunk, unsigned char* out, int count) {
  for (int i = int(threadIdx.x); i < count; i += kThreads) out[i] = chunk.bytes[i];
}

}  // namespace

void store(const StoreArgs& args, Stream stream) {
  const unsigned char* const from = static_cast<const unsigned char*>(args.data);
  unsigned char* const to = static_cast<unsigned char*>(args.out);
  for (long long at = 0; at < args.bytes; at += (long long)sizeof(Chunk)) {
    const long long left = args.bytes - at;
    const int count = int(left < (long long)sizeof(Chunk) ? left : (long long)sizeof(Chunk));
    Chunk chunk = {};
    for (int i = 0; i < count; ++i) chunk.bytes[i] = from[at + i];
    launch(stream, store_kernel, dim3(1), dim3(kThreads), 0, chunk, to + at, count);
  }
}

}  // namespace gradloom::kernels::gpu
