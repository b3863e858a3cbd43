// gradloom_recorder_*: recorded loops (app/loop_recorder.h) behind C.
#include "app/embed/border.h"
#include "app/embed/module_handle.h"
#include "app/loop_recorder.h"

using namespace gradloom;

struct gradloom_recorder {
  std::shared_ptr<LoopRecorder> recorder;
  mutable std::atomic<bool> broken{false};
};

namespace {

template <class Body>
int on(gradloom_recorder* recorder, const Body& body) noexcept {
  if (recorder == nullptr) return embed::report(Errc::usage, "recorder is null");
  return embed::guarded(&recorder->broken, body);
}

const char* text_of(const char* text) { return text == nullptr ? "" : text; }

}  // namespace

int gradloom_recorder_open(const char* session, int word_count, const char* const* words,
                           gradloom_recorder** recorder) {
  return embed::guarded(nullptr, [&]() -> Status {
    TRY(embed::given(session, "session"));
    TRY(embed::given(recorder, "recorder"));
    auto handle = std::make_unique<gradloom_recorder>();
    handle->recorder = TRY(LoopRecorder::open(session, TRY(embed::words_of(word_count, words))));
    *recorder = handle.release();
    return {};
  });
}

int gradloom_recorder_watch(gradloom_recorder* recorder, gradloom_module* module, const char* name) {
  return on(recorder, [&]() -> Status {
    TRY(embed::given(module, "module"));
    return recorder->recorder->watch(*module->module, text_of(name));
  });
}

int gradloom_recorder_span(gradloom_recorder* recorder, const char* kind, const char* name, int64_t start_ns,
                           int64_t end_ns) {
  return on(recorder, [&]() -> Status {
    TRY(embed::given(kind, "kind"));
    return recorder->recorder->add_span(kind, text_of(name), start_ns, end_ns);
  });
}

int gradloom_recorder_begin_step(gradloom_recorder* recorder, int64_t start_ns) {
  return on(recorder, [&]() -> Status { return recorder->recorder->begin_step(start_ns); });
}

int gradloom_recorder_end_step(gradloom_recorder* recorder, int64_t end_ns, double loss, double lr) {
  return on(recorder, [&]() -> Status { return recorder->recorder->end_step(end_ns, loss, lr); });
}

int gradloom_recorder_tell(gradloom_recorder* recorder, const char* name, const char* value) {
  return on(recorder, [&]() -> Status {
    TRY(embed::given(name, "name"));
    return recorder->recorder->tell(name, text_of(value));
  });
}

int gradloom_recorder_close(gradloom_recorder* recorder, const char* failure) {
  const std::unique_ptr<gradloom_recorder> handle(recorder);
  return embed::guarded(
      nullptr, [&]() -> Status { return handle ? handle->recorder->close(text_of(failure)) : Status(); });
}
