#include "profiler/import/imported_trace.h"

#include "profiler/import/chrome_events.h"
#include "profiler/import/kineto.h"
#include "profiler/import/onnxruntime.h"

namespace gradloom {

const std::vector<ImportOrigin>& import_origins() {
  static const std::vector<ImportOrigin> origins{
      {"kineto", "PyTorch's profiler"},
      {"onnxruntime", "ONNX Runtime's profiler"},
      {"nsys", "Nsight Systems"},
  };
  return origins;
}

const ImportOrigin* find_import_origin(const std::string& name) {
  for (const ImportOrigin& origin : import_origins())
    if (name == origin.name) return &origin;
  return nullptr;
}

Result<ImportedTrace> read_json_trace(const std::string& path, const ImportProgress& progress) {
  ChromeEvents events = TRY(read_chrome_events(path, progress));
  auto trace = events.of_onnxruntime ? import_onnxruntime(events) : import_kineto(events);
  if (!trace) return with_context(trace.error(), path);
  return trace;
}

}  // namespace gradloom
