// Bytes known when planning: read where they lie on the CPU, stored in parts on a GPU.
#include "engine/ops/known_bytes.h"

#include <cstring>

#include "tests/engine/ops/support.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

// Carries out what a GPU's queue would.
struct Stores {
  std::size_t count = 0;
  static void take(void* queue, kernels::KernelId id, const void* args, std::size_t bytes) {
    ASSERT_EQ(id, kernels::KernelId::store);
    ASSERT_EQ(bytes, sizeof(kernels::StoreArgs));
    const auto& store = *static_cast<const kernels::StoreArgs*>(args);
    ASSERT_LE(store.bytes, kernels::kStoreMaxBytes);
    std::memcpy(store.out, store.data, static_cast<std::size_t>(store.bytes));
    ++static_cast<Stores*>(queue)->count;
  }
};

TEST(KnownBytes, LieInTheWorkspaceOfAGpu) {
  const std::vector<std::int32_t> small = {1, 2, 3};
  const std::vector<double> large(20000, 0.5);
  for (const auto target : {kernels::Target::cpu, kernels::Target::gpu}) {
    KnownBytes known(target);
    const std::size_t a = known.add(small), b = known.add(large);
    EXPECT_EQ(b % 16, 0u);
    EXPECT_EQ(known.workspace_bytes() > 0, target == kernels::Target::gpu);
    std::vector<char> workspace(known.workspace_bytes());
    Stores stores;
    const kernels::Launcher queue(Stores::take, &stores);
    const char* const place =
        known.place(target == kernels::Target::gpu ? queue : kernels::cpu_launcher(), workspace.data());
    EXPECT_EQ(std::memcmp(place + a, small.data(), 12), 0);
    EXPECT_EQ(std::memcmp(place + b, large.data(), large.size() * 8), 0);
    EXPECT_EQ(stores.count, target == kernels::Target::gpu ? 3u : 0u);
  }
}

}  // namespace
}  // namespace gradloom
