// gradloom_module_*: modules (app/module.h) behind C.
#include <algorithm>

#include "app/embed/border.h"
#include "app/embed/module_handle.h"

using namespace gradloom;

namespace {

Status make_handle(Result<std::unique_ptr<ModelModule>> opened, gradloom_module** module) {
  auto handle = std::make_unique<gradloom_module>();
  handle->module = TRY(std::move(opened));
  for (const std::string& note : handle->module->notes()) handle->notes += note + "\n";
  handle->extents = embed::extents_of(handle->module->model());
  *module = handle.release();
  return {};
}

Result<const std::vector<ModuleValue>*> values_of(const gradloom_module& module, int kind) {
  switch (kind) {
    case GRADLOOM_INPUT: return &module.module->values(ModuleKind::input);
    case GRADLOOM_OUTPUT: return &module.module->values(ModuleKind::output);
    case GRADLOOM_PARAMETER: return &module.module->values(ModuleKind::parameter);
    case GRADLOOM_STATISTIC: return &module.module->values(ModuleKind::statistic);
    default: return Error{Errc::usage, "modules have no values of kind " + std::to_string(kind)};
  }
}

Result<ModuleCall> read_call(const gradloom_call* from) {
  const gradloom_call call = TRY(embed::sized(from, "call"));
  if ((call.flags & ~GRADLOOM_NO_GRAD) != 0)
    return Error{Errc::usage, "unknown flags " + std::to_string(call.flags)};
  return ModuleCall{.no_grad = (call.flags & GRADLOOM_NO_GRAD) != 0,
                    .inputs = call.inputs,
                    .parameters = call.parameters,
                    .statistics = call.statistics,
                    .outputs = call.outputs,
                    .arena = call.arena,
                    .seed = call.seed,
                    .step = call.step,
                    .stream = call.stream,
                    .output_gradients = call.output_gradients,
                    .input_gradients = call.input_gradients,
                    .parameter_gradients = call.parameter_gradients};
}

// A call on a handle.
template <class Body>
int on(const gradloom_module* module, const Body& body) noexcept {
  if (module == nullptr) return embed::report(Errc::usage, "module is null");
  return embed::guarded(&module->broken, body);
}

}  // namespace

int gradloom_module_open(const char* path, int word_count, const char* const* words,
                         gradloom_module** module) {
  return embed::guarded(nullptr, [&]() -> Status {
    TRY(embed::given(module, "module"));
    return make_handle(
        ModelModule::open(path == nullptr ? "" : path, TRY(embed::words_of(word_count, words))), module);
  });
}

int gradloom_module_open_bytes(const void* bytes, size_t size, int word_count, const char* const* words,
                               gradloom_module** module) {
  return embed::guarded(nullptr, [&]() -> Status {
    TRY(embed::given(bytes, "bytes"));
    TRY(embed::given(module, "module"));
    return make_handle(ModelModule::open_bytes({static_cast<const char*>(bytes), size},
                                               TRY(embed::words_of(word_count, words))),
                       module);
  });
}

void gradloom_module_close(gradloom_module* module) {
  (void)embed::guarded(nullptr, [&]() -> Status {
    delete module;
    return {};
  });
}

int gradloom_module_count(const gradloom_module* module, int kind, int* count) {
  return on(module, [&]() -> Status {
    TRY(embed::given(count, "count"));
    *count = static_cast<int>(TRY(values_of(*module, kind))->size());
    return {};
  });
}

int gradloom_module_value(const gradloom_module* module, int kind, int index, gradloom_value* value) {
  return on(module, [&]() -> Status {
    TRY(embed::given(value, "value"));
    const std::vector<ModuleValue>& values = *TRY(values_of(*module, kind));
    TRY(embed::check_index(index, values.size()));
    const ModuleValue& v = values[static_cast<std::size_t>(index)];
    *value = embed::described(v.name, v.type, v.gradient, v.used);
    return {};
  });
}

int gradloom_module_extents(const gradloom_module* module, const int64_t** extents, size_t* count) {
  return on(module, [&]() -> Status {
    TRY(embed::given(extents, "extents"));
    TRY(embed::given(count, "count"));
    *extents = module->extents.data();
    *count = module->extents.size();
    return {};
  });
}

int gradloom_module_notes(const gradloom_module* module, const char** notes) {
  return on(module, [&]() -> Status {
    TRY(embed::given(notes, "notes"));
    *notes = module->notes.c_str();
    return {};
  });
}

int gradloom_module_arena(gradloom_module* module, int flags, int64_t* bytes, int64_t* alignment) {
  return on(module, [&]() -> Status {
    TRY(embed::given(bytes, "bytes"));
    *bytes = TRY(module->module->arena_bytes((flags & GRADLOOM_NO_GRAD) != 0));
    if (alignment != nullptr) *alignment = module->module->arena_alignment();
    return {};
  });
}

int gradloom_module_forward(gradloom_module* module, const gradloom_call* call) {
  return on(module, [&]() -> Status { return module->module->forward(TRY(read_call(call))); });
}

int gradloom_module_backward(gradloom_module* module, const gradloom_call* call) {
  return on(module, [&]() -> Status { return module->module->backward(TRY(read_call(call))); });
}
