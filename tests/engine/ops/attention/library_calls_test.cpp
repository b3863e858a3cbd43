// Attention by a library of the device: where all of it is more than the library's memory, in calls that cover each
// head of each image once. What it does not take, by our own kernel.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "engine/ops/copies.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "kernels/launcher.h"

namespace gradloom {
namespace {

using kernels::AttentionArgs, kernels::AttentionGradArgs;

// What a library was offered. The addresses are never read.
struct Library {
  std::vector<AttentionGradArgs> calls;
  std::size_t takes = SIZE_MAX;                // so many calls
  std::vector<kernels::KernelId> own_kernels;  // launched instead
  std::size_t workspace_bytes = 0;
};

void queue(void* to, kernels::KernelId id, const void*, std::size_t) {
  static_cast<Library*>(to)->own_kernels.push_back(id);
}
bool offer(void* to, kernels::LibraryKernelId id, const void* args, std::size_t bytes) {
  auto& library = *static_cast<Library*>(to);
  EXPECT_EQ(id, kernels::LibraryKernelId::attention_grad);
  EXPECT_EQ(bytes, sizeof(AttentionGradArgs));
  if (library.calls.size() == library.takes) return false;
  library.calls.push_back(*static_cast<const AttentionGradArgs*>(args));
  return true;
}

struct Attended {
  std::int64_t batch, heads, rows, d;
  Shape mask{};  // of what is added; empty: none
  double dropout = 0;
  DType dtype = DType::bf16;
};

NodeTypes types_of(const Attended& a) {
  const Type whole{a.dtype, {a.batch, a.heads, a.rows, a.d}};
  NodeTypes types;
  types.target = kernels::Target::gpu;
  types.dnn_library = true;
  types.inputs.assign(6, whole);
  types.inputs[2] = {statistics_type(a.dtype), {a.batch, a.heads, a.rows}};
  types.outputs.assign(3, whole);
  if (a.dropout > 0) types.attrs.set("dropout", a.dropout);
  if (!a.mask.empty()) {
    types.attrs.set("mask", std::string("add"));
    types.inputs.push_back({a.dtype, a.mask});
  }
  types.input_present.assign(types.inputs.size(), true);
  types.output_present.assign(3, true);
  types.constants.assign(types.inputs.size(), nullptr);
  return types;
}

// dy, q, k, v, mask; dq, dk, dv; workspace; y, log-sum-exp
constexpr std::uintptr_t kPlaces[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
void* place(std::size_t i) { return reinterpret_cast<void*>(kPlaces[i] << 40); }

Library call_library(const Attended& a, std::size_t takes = SIZE_MAX) {
  auto kernel = prepare_kernel(op_by_name("FusedAttentionGrad"), types_of(a));
  EXPECT_TRUE(kernel.ok()) << kernel.error().message;
  Library library{.takes = takes};
  library.workspace_bytes = kernel->workspace_bytes;
  const void* const inputs[] = {
      place(0), place(9), place(10), place(1), place(2), place(3), a.mask.empty() ? nullptr : place(4)};
  void* const outputs[] = {place(5), place(6), place(7)};
  const kernels::Launcher launcher(queue, &library, offer);
  kernel->run({inputs, outputs, place(8), nullptr, launcher});
  for (const AttentionGradArgs& call : library.calls) {
    EXPECT_EQ(call.forward.workspace, place(8));
    EXPECT_LE(call.forward.workspace_bytes, kernel->workspace_bytes);
    EXPECT_LE(kernels::library_workspace_bytes(call), call.forward.workspace_bytes);
    EXPECT_GT(kernels::library_workspace_bytes(call), 0u);
  }
  return library;
}

// Elements from the beginning of the tensor there.
std::int64_t offset(const void* address, std::size_t i) {
  return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(address) - (kPlaces[i] << 40)) / 2;
}

// Each image's heads, by the calls that computed them.
std::map<std::pair<std::int64_t, std::int64_t>, int> covered(const Library& library, const Attended& a) {
  std::map<std::pair<std::int64_t, std::int64_t>, int> times;
  const std::int64_t head = a.rows * a.d, image = a.heads * head;
  for (const AttentionGradArgs& call : library.calls) {
    const AttentionArgs& f = call.forward;
    const std::int64_t at = offset(f.q, 1);
    const void* const others[] = {call.dy, f.q, f.k, f.v, call.dq, call.dk, call.dv, f.y};
    constexpr std::size_t kOf[] = {0, 1, 2, 3, 5, 6, 7, 9};
    for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(offset(others[i], kOf[i]), at) << i;
    EXPECT_EQ(offset(f.log_sum_exp, 10) / 2, at / a.d) << "an f32 per row";
    if (!a.mask.empty()) {
      const std::int64_t of_image = a.mask[0] > 1 ? a.mask[1] * a.mask[2] * a.mask[3] : 0,
                         of_head = a.mask[1] > 1 ? a.mask[2] * a.mask[3] : 0;
      EXPECT_EQ(offset(f.mask, 4), at / image * of_image + at % image / head * of_head);
      EXPECT_EQ(f.mask_dims[0], a.mask[0] > 1 ? f.batch : 1);
      EXPECT_EQ(f.mask_dims[1], a.mask[1] > 1 ? f.heads : 1);
    }
    for (std::int64_t b = 0; b < f.batch; ++b)
      for (std::int64_t h = 0; h < f.heads; ++h) ++times[{at / image + b, at % image / head + h}];
  }
  return times;
}

void expect_all_once(const Attended& a, std::size_t calls) {
  const Library library = call_library(a);
  EXPECT_EQ(library.calls.size(), calls);
  EXPECT_TRUE(library.own_kernels.empty());
  const auto times = covered(library, a);
  EXPECT_EQ(times.size(), static_cast<std::size_t>(a.batch * a.heads));
  for (const auto& [at, count] : times) {
    EXPECT_LT(at.first, a.batch);
    EXPECT_LT(at.second, a.heads);
    EXPECT_EQ(count, 1) << at.first << ", " << at.second;
  }
}

TEST(LibraryCalls, OneWhereItHasRoom) { expect_all_once({4, 12, 1024, 64}, 1); }

// GPT-2 124M with a batch of 64: 24 MiB of scores an image, of 256 MiB.
TEST(LibraryCalls, OfAsManyImagesAsHaveRoom) { expect_all_once({64, 12, 1024, 64}, 7); }

TEST(LibraryCalls, OfHeadsWhereAnImageIsTooLarge) { expect_all_once({2, 20, 4096, 64}, 6); }

TEST(LibraryCalls, TakeTheirPartOfTheMask) {
  expect_all_once({64, 12, 1024, 64, {64, 1, 1, 1024}}, 7);
  expect_all_once({64, 12, 1024, 64, {1, 12, 1024, 1024}}, 7);
  expect_all_once({2, 20, 4096, 64, {2, 20, 1, 4096}}, 6);
}

const std::vector<kernels::KernelId> kOurs{kernels::KernelId::flash_attention_grad};

TEST(LibraryCalls, GiveWayToOurKernelWhereOneIsRefused) {
  const Library library = call_library({64, 12, 1024, 64}, 3);
  EXPECT_EQ(library.calls.size(), 3u);
  EXPECT_EQ(library.own_kernels, kOurs);
}

// Ours needs three numbers a row.
TEST(LibraryCalls, AreNotOfferedWhereOneHeadIsTooMuch) {
  const Library library = call_library({1, 1, 16384, 64});
  EXPECT_TRUE(library.calls.empty());
  EXPECT_EQ(library.own_kernels, kOurs);
  EXPECT_EQ(library.workspace_bytes, 16384u * 12);
}

TEST(LibraryCalls, AreNotOfferedDropout) {
  const Library library = call_library({64, 12, 1024, 64, {}, 0.1});
  EXPECT_TRUE(library.calls.empty());
  EXPECT_EQ(library.own_kernels, kOurs);
  EXPECT_EQ(library.workspace_bytes, 64u * 12 * 1024 * 12);
}

// The sequence of kernels, whose scores lie in the workspace.
TEST(LibraryCalls, LeaveToTheSequenceWhatOurKernelDoesNotTake) {
  for (const Attended& a : {Attended{1, 1, 64, 264, {}, 0.1}, Attended{1, 1, 64, 64, {}, 0, DType::f32}}) {
    const Library library = call_library(a);
    EXPECT_TRUE(library.calls.empty());
    EXPECT_GT(library.own_kernels.size(), 5u);
    EXPECT_GT(library.workspace_bytes, 64u * 64 * 4);
  }
}

}  // namespace
}  // namespace gradloom
