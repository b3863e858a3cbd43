#include "app/embed/border.h"

#include <algorithm>
#include <cstdio>

#include "app/job.h"
#include "engine/base/text.h"
#include "engine/ops/custom/custom_ops.h"
#include "engine/ops/inference.h"
#include "kernels/cpu.h"

namespace gradloom::embed {
namespace {

// No destructor: threads may end after everything else.
constexpr std::size_t kLineBytes = 4096;
thread_local char last_error[kLineBytes];

std::atomic<int> chosen_threads{0};  // 0: nobody asked for a number

}  // namespace

int report(Errc code, const char* line) noexcept {
  std::size_t i = 0;
  for (; line[i] != 0 && i + 1 < kLineBytes; ++i)
    last_error[i] = line[i] == '\n' || line[i] == '\r' ? ' ' : line[i];
  last_error[i] = 0;
  return static_cast<int>(code);
}

int report(const Error& error) noexcept { return report(error.code, error.message.c_str()); }

Output::Listener listener(const gradloom_callbacks& callbacks) {
  return [&callbacks](Said said, const std::string& line) {
    const int level = said == Said::text    ? GRADLOOM_LOG_TEXT
                      : said == Said::note  ? GRADLOOM_LOG_NOTE
                      : said == Said::error ? GRADLOOM_LOG_ERROR
                                            : GRADLOOM_LOG_JSON;
    if (callbacks.log != nullptr) callbacks.log(callbacks.user, level, line.c_str());
  };
}

Status given(const void* argument, const char* name) {
  if (argument != nullptr) return {};
  return Error{Errc::usage, std::string(name) + " is null"};
}

Result<std::vector<std::string>> words_of(int count, const char* const* words) {
  if (count < 0) return Error{Errc::usage, "a negative number of words"};
  if (count > 0) TRY(given(words, "words"));
  std::vector<std::string> all;
  // What the words themselves say comes later, and so holds.
  if (chosen_threads > 0) all = {"--threads", std::to_string(chosen_threads)};
  for (int i = 0; i < count; ++i) {
    TRY(given(words[i], "a word"));
    all.emplace_back(words[i]);
  }
  return all;
}

std::int32_t dtype_number(DType dtype) { return static_cast<std::int32_t>(onnx_from_dtype(dtype)); }

gradloom_value described(const std::string& name, const Type& type, bool gradient, bool used) {
  return {name.c_str(),
          dtype_number(type.dtype),
          static_cast<std::int32_t>(type.shape.size()),
          type.shape.data(),
          static_cast<std::int64_t>(byte_size(type)),
          gradient ? 1 : 0,
          used ? 1 : 0};
}

std::vector<std::int64_t> extents_of(const Graph& graph) {
  std::vector<std::int64_t> extents;
  for (const Node& node : graph.nodes) {
    if (!node.alive()) continue;
    for (const ValueId id : node.outputs) {
      if (id == kNone) continue;
      const Shape& shape = graph.type(id).shape;
      extents.push_back(static_cast<std::int64_t>(shape.size()));
      extents.insert(extents.end(), shape.begin(), shape.end());
    }
  }
  return extents;
}

Status check_index(int index, std::size_t count) {
  if (index >= 0 && static_cast<std::size_t>(index) < count) return {};
  return Error{Errc::usage, "number " + std::to_string(index) + " of " + std::to_string(count) + " values"};
}

}  // namespace gradloom::embed

using namespace gradloom;

const char* gradloom_version(void) { return GRADLOOM_VERSION; }
int gradloom_api(void) { return GRADLOOM_API_MAJOR * 1000 + GRADLOOM_API_MINOR; }
const char* gradloom_last_error(void) { return embed::last_error; }
int gradloom_threads(void) { return kernels::threads(); }

int gradloom_set_threads(int threads) {
  return embed::guarded(nullptr, [&]() -> Status {
    if (threads < 0 || threads > 1024)
      return Error{Errc::usage, "threads: " + std::to_string(threads) + " is not in 0 to 1024"};
    TRY(apply_threads(threads));
    embed::chosen_threads = threads;
    return {};
  });
}

int gradloom_load_ops(const char* path) {
  return embed::guarded(nullptr, [&]() -> Status {
    TRY(embed::given(path, "path"));
    TRY(load_op_library(path));
    return {};
  });
}
