// gradloom_host_function_*: functions of the caller that nodes HostCall of a model call.
#include "app/embed/border.h"
#include "engine/ops/custom/host_call.h"
#include "kernels/signals.h"

using namespace gradloom;

namespace {

std::vector<gradloom_host_tensor> as_c(std::span<const HostTensor> tensors) {
  std::vector<gradloom_host_tensor> made;
  for (const HostTensor& t : tensors)
    made.push_back(
        {t.data, embed::dtype_number(t.dtype), static_cast<std::int32_t>(t.shape.size()), t.shape.data()});
  return made;
}

}  // namespace

int gradloom_host_function_add(gradloom_host_function function, void* user, int64_t* number) {
  return embed::guarded(nullptr, [&]() -> Status {
    TRY(embed::given(reinterpret_cast<const void*>(function), "function"));
    TRY(embed::given(number, "number"));
    *number = add_host_function([=](std::int64_t call, bool backward, std::span<const HostTensor> inputs,
                                    std::span<const HostTensor> outputs) {
      const std::vector<gradloom_host_tensor> in = as_c(inputs), out = as_c(outputs);
      const kernels::NoSignals::Pause signals;
      return function(user, call, backward ? 1 : 0, static_cast<int>(in.size()), in.data(),
                      static_cast<int>(out.size()), out.data()) == 0;
    });
    return {};
  });
}

int gradloom_host_function_remove(int64_t number) {
  return embed::guarded(nullptr, [&]() -> Status {
    remove_host_function(number);
    return {};
  });
}
