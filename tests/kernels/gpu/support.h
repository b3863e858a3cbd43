// Harness of the GPU kernel tests: a kernel runs on the host executor (kernels/gpu/host) and its results are
// compared with the CPU's. Every test is in two binaries, with 32 and with 64 lanes per warp
// (gpu_kernels_tests, gpu_kernels_wave64_tests).
//
//   template <class T> void check_softmax(i64 outer, i64 n) {         // T: float, f16, bf16, double
//     const auto x = numbers<T>(outer * n, 1);                        // random, exact in T; std::vector<Host<T>>
//     std::vector<Host<T>> y(x.size());
//     cpu().softmax({cpu_dtype<T>(), false, outer, n, 1, x.data(), y.data()});
//     const Results gpu = on_device([&](Device& device) {
//       device.run(gpu::softmax, SoftmaxArgs{gpu_dtype<T>(), false, outer, n, 1, device.in<T>(x), device.out<T>("y", y.size())});
//     });
//     expect_close(gpu.get<T>("y"), widen(y), tolerance<T>({1e-6, 1e-6}), "y");
//   }
//
// on_device() calls the function once per thread order (ascending, descending, shuffled) and asks for equal
// bits; where races are found by themselves (gpu_races_tests), once. It reports faults of the executor, writes around any
// buffer and into inputs, and NaN (0xFF bytes) is what outputs and workspaces hold before.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>

#include "engine/device/gpu/host/executor.h"
#include "kernels/gpu/batch_norm.h"
#include "kernels/gpu/kernel_counts.h"
#include "kernels/gpu/kernels.h"
#include "tests/kernels/support.h"

namespace gradloom::kernels::gpu::test {

using kernels::test::expect_close;
using kernels::test::Random;
using kernels::test::Tolerance;
using kernels::test::values;
using i64 = std::int64_t;

// ---- types ----------------------------------------------------------------------------------------------------------------------

// Rounding to T changes a number by this share of it at most; 0: not a half type (kernels/types.h).
template <class T>
constexpr double kUnit = std::is_same_v<T, f16>    ? 0x1p-11
                         : std::is_same_v<T, bf16> ? 0x1p-8
                                                   : 0;
template <class T>
constexpr bool kHalf = kUnit<T> != 0;
using Halves = testing::Types<f16, bf16>;

// What the CPU computes in for storage type T of the device.
template <class T>
using Host = std::conditional_t<kHalf<T>, float, T>;

template <class T>
constexpr DType cpu_dtype() {
  return kernels::test::dtype_of<Host<T>>();
}
template <class T>
constexpr DType gpu_dtype() {
  if constexpr (std::is_same_v<T, f16>) return DType::f16;
  if constexpr (std::is_same_v<T, bf16>) return DType::bf16;
  return kernels::test::dtype_of<T>();
}

template <class T>
T to_device(Host<T> v) {
  if constexpr (kHalf<T>)
    return from_accum<T>(v);
  else
    return v;
}
template <class T>
Host<T> to_host(T v) {
  if constexpr (kHalf<T>)
    return to_float(v);
  else
    return v;
}

// values() that T holds exactly.
template <class T>
std::vector<Host<T>> numbers(i64 n, std::uint64_t seed, double low = -2.0, double high = 2.0) {
  auto v = values<Host<T>>(n, seed, low, high);
  for (auto& x : v) x = to_host(to_device<T>(x));
  return v;
}

template <class T>
std::vector<double> widen(const std::vector<T>& v) {
  return {v.begin(), v.end()};
}

// f32: as given. Half types: the rounding of the result more, that of f16's subnormals too. f64: as exact as
// reductions in another order can be.
template <class T>
constexpr Tolerance tolerance(Tolerance f32) {
  if constexpr (std::is_same_v<T, f16>) return {kUnit<T> + f32.relative, std::max(f32.absolute, 0x1p-25)};
  if constexpr (std::is_same_v<T, bf16>) return {kUnit<T> + f32.relative, f32.absolute};
  if constexpr (std::is_same_v<T, double>) return {1e-10, 1e-12};
  return f32;
}

// ---- device memory --------------------------------------------------------------------------------------------------------------

// Bytes at a 256-byte boundary (or `offset` bytes behind one), guarded on both sides.
class Buffer {
 public:
  Buffer(std::string name, std::size_t bytes, std::size_t offset = 0)
      : name_(std::move(name)),
        bytes_(bytes),
        offset_(offset),
        memory_(kGuard + offset + bytes + kGuard + kAlign, kGuardByte) {
    std::memset(data(), 0xFF, bytes);
  }
  unsigned char* data() {
    auto at = reinterpret_cast<std::uintptr_t>(memory_.data()) + kGuard;
    return reinterpret_cast<unsigned char*>((at + kAlign - 1) / kAlign * kAlign + offset_);
  }
  std::size_t bytes() const { return bytes_; }
  const std::string& name() const { return name_; }
  void expect_guards() {
    const auto whole = [](const unsigned char* from, const unsigned char* to) {
      return std::all_of(from, to, [](unsigned char byte) { return byte == kGuardByte; });
    };
    EXPECT_TRUE(whole(memory_.data(), data())) << "written before buffer " << name_;
    EXPECT_TRUE(whole(data() + bytes_, memory_.data() + memory_.size())) << "written after buffer " << name_;
  }

 private:
  static constexpr std::size_t kGuard = 512, kAlign = 256;
  static constexpr unsigned char kGuardByte = 0xA5;
  std::string name_;
  std::size_t bytes_, offset_;
  std::vector<unsigned char> memory_;
};

// What the outputs of one run hold.
class Results {
 public:
  std::map<std::string, std::vector<unsigned char>> bytes;

  // The elements of out<T>(name) or inout<T>(name), as the CPU has them.
  template <class T>
  std::vector<Host<T>> get(const std::string& name) const {
    const auto found = bytes.find(name);
    if (found == bytes.end()) {
      ADD_FAILURE() << "no output " << name;
      return {};
    }
    std::vector<Host<T>> v(found->second.size() / sizeof(T));
    for (std::size_t i = 0; i < v.size(); ++i) {
      T element;
      std::memcpy(&element, found->second.data() + i * sizeof(T), sizeof(T));
      v[i] = to_host(element);
    }
    return v;
  }
};

// A device of the executor for one run. Pointers stay valid until the run ends.
class Device {
 public:
  explicit Device(host::ThreadOrder order) : order_(order) {}

  // Offsets move the buffer off its 256-byte boundary, in elements: kernels must work there too.
  template <class T>
  const T* in(const std::vector<Host<T>>& v, std::size_t offset = 0) {
    Buffer& buffer =
        add("input " + std::to_string(buffers_.size()), v.size() * sizeof(T), offset * sizeof(T));
    store<T>(buffer, v);
    inputs_.emplace_back(&buffer, std::vector<unsigned char>(buffer.data(), buffer.data() + buffer.bytes()));
    return reinterpret_cast<const T*>(buffer.data());
  }
  template <class T>
  T* out(const std::string& name, std::size_t n, std::size_t offset = 0) {
    Buffer& buffer = add(name, n * sizeof(T), offset * sizeof(T));
    outputs_.push_back(&buffer);
    return reinterpret_cast<T*>(buffer.data());
  }
  template <class T>
  T* inout(const std::string& name, const std::vector<Host<T>>& v, std::size_t offset = 0) {
    T* at = out<T>(name, v.size(), offset);
    store<T>(*outputs_.back(), v);
    return at;
  }
  // Null for 0 bytes.
  void* workspace(std::size_t bytes) { return bytes == 0 ? nullptr : add("workspace", bytes, 0).data(); }

  // Runs a launcher of kernels/gpu/kernels.h, then what it launched,
  // whose arguments must not point into the launcher's frame.
  template <class Args>
  void run(void (*launcher)(const Args&, Stream), const Args& args) {
    const auto copy = std::make_unique<Args>(args);
    const std::size_t before = launches_;
    launch([&](Stream stream) { launcher(*copy, stream); });
    if (launches_ > before && !completes_library(launcher)) {
      EXPECT_EQ(launches_ - before, std::size_t(kernels_of(args))) << "kernels that are told of beforehand";
    }
  }
  // The same for any code that calls launch().
  void launch(const std::function<void(Stream)>& launcher) {
    host::LaunchList list;
    launcher(&list);
    launches_ += list.launches.size();
    for (const host::KeptLaunch& kept : list.launches)
      if (!fault_) fault_ = host::run(kept.get(), order_);
  }

  std::size_t launches() const { return launches_; }
  const std::optional<host::Fault>& fault() const { return fault_; }
  Results finish() {
    for (auto& buffer : buffers_) buffer->expect_guards();
    for (auto& [buffer, before] : inputs_) {
      EXPECT_TRUE(std::equal(before.begin(), before.end(), buffer->data()))
          << buffer->name() << " was written";
    }
    Results results;
    for (Buffer* buffer : outputs_)
      results.bytes[buffer->name()].assign(buffer->data(), buffer->data() + buffer->bytes());
    return results;
  }

 private:
  // What a library leaves to us is no kernel of an operator.
  template <class Args>
  static bool completes_library(void (*launcher)(const Args&, Stream)) {
    if constexpr (std::is_same_v<Args, GemmArgs>) return launcher == gpu::gemm_epilogue;
    if constexpr (std::is_same_v<Args, ConvolutionArgs>) return launcher == gpu::convolution_bias;
    if constexpr (std::is_same_v<Args, BatchNormArgs>) return launcher == gpu::batch_norm_running;
    return false;
  }
  Buffer& add(const std::string& name, std::size_t bytes, std::size_t offset) {
    return *buffers_.emplace_back(std::make_unique<Buffer>(name, bytes, offset));
  }
  template <class T>
  static void store(Buffer& buffer, const std::vector<Host<T>>& v) {
    T* at = reinterpret_cast<T*>(buffer.data());
    for (std::size_t i = 0; i < v.size(); ++i) at[i] = to_device<T>(v[i]);
  }

  host::ThreadOrder order_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<Buffer*> outputs_;
  std::vector<std::pair<Buffer*, std::vector<unsigned char>>> inputs_;
  std::optional<host::Fault> fault_;
  std::size_t launches_ = 0;
};

inline const std::vector<host::ThreadOrder>& thread_orders() {
  using host::ThreadOrder;
  static const std::vector<ThreadOrder> orders{
      {ThreadOrder::ascending}, {ThreadOrder::descending}, {ThreadOrder::shuffled, 7}};
  return orders;
}

// Outputs of run(device), the same bits in every thread order.
template <class Run>
Results on_device(const Run& run) {
  Results first;
  for (const host::ThreadOrder order : thread_orders()) {
    Device device(order);
    run(device);
    if (device.fault()) {
      ADD_FAILURE() << device.fault()->text;
      return device.finish();
    }
    Results results = device.finish();
    if (first.bytes.empty()) first = results;
    for (const auto& [name, bytes] : results.bytes) {
      EXPECT_EQ(first.bytes[name], bytes)
          << name << " differs in thread order " << int(order.kind) << ": a barrier is missing";
    }
  }
  return first;
}

}  // namespace gradloom::kernels::gpu::test
