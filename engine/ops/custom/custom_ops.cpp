#include "engine/ops/custom/custom_ops.h"

#include <dlfcn.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string_view>

#include "engine/base/hash.h"
#include "engine/base/text.h"
#include "engine/ops/custom/custom_rows.h"
#include "engine/ops/custom/host_call.h"

namespace gradloom {
namespace {

// Operators are added under the mutex and then counted: who reads takes no lock.
std::mutex adding;
std::atomic<std::size_t> op_count{0};
std::vector<OpLibrary>& libraries() {
  static std::vector<OpLibrary> all;
  return all;
}

// What one library adds, until all of it turned out right.
struct Registration : gradloom_op_registry {
  std::vector<std::unique_ptr<CustomOp>> ops;
  std::string refused;
};

bool is_word(const char* text, std::string_view more) {
  if (text == nullptr || *text == '\0' || std::string_view(text).size() > 200) return false;
  for (const char c : std::string_view(text)) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!letter && more.find(c) == std::string_view::npos) return false;
  }
  return true;
}

bool is_taken_domain(std::string_view domain) {
  return domain == "gradloom" || domain == "com.microsoft" || domain == "ai.onnx" ||
         domain.substr(0, 8) == "ai.onnx.";
}

bool has_op(const Registration& registration, const std::string& title) {
  const std::size_t count = op_count.load();
  for (std::size_t i = 0; i < count; ++i)
    if (custom_op_table[i]->title == title) return true;
  for (const auto& op : registration.ops)
    if (op->title == title) return true;
  return false;
}

// Why the operator cannot be; empty: it can.
std::string problem_of(const Registration& registration, const gradloom_op& op) {
  if (!is_word(op.domain, "._-") || is_taken_domain(op.domain))
    return "the domain must be of letters, digits, '.', '_' and '-', and not ONNX's or Gradloom's";
  if (!is_word(op.name, "_")) return "the name must be of letters, digits and '_'";
  for (const OpDef* row : all_ops())  // code that asks for a name means that operator
    if (op.name == std::string_view(row->name)) return "the name is that of an operator of ONNX or Gradloom";
  if (has_op(registration, std::string(op.domain) + "::" + op.name))
    return "there is one of this name already";
  if (op.version < 1) return "version must be at least 1";
  if (op.min_inputs < 0 || op.max_inputs < op.min_inputs || op.max_inputs > GRADLOOM_OP_MAX_INPUTS)
    return "min_inputs and max_inputs must be within 0 and " + std::to_string(GRADLOOM_OP_MAX_INPUTS);
  if (op.outputs < 1 || op.outputs > GRADLOOM_OP_MAX_OUTPUTS)
    return "outputs must be within 1 and " + std::to_string(GRADLOOM_OP_MAX_OUTPUTS);
  if (op.dtypes == 0) return "it takes no type";
  if (op.forward == nullptr) return "it has no forward kernel";
  return "";
}

int add(gradloom_op_registry* registry, const gradloom_op* op) {
  auto& registration = *static_cast<Registration*>(registry);
  if (!registration.refused.empty()) return 1;
  if (op == nullptr) {
    registration.refused = "it adds an operator that is null";
    return 1;
  }
  if (op->made_for != GRADLOOM_OP_VERSION) {
    registration.refused = "it is made for version " + std::to_string(op->made_for) +
                           " of gradloom_op.h, this program has version " +
                           std::to_string(GRADLOOM_OP_VERSION);
    return 1;
  }
  if (const std::string problem = problem_of(registration, *op); !problem.empty()) {
    const auto text = [](const char* of) { return of == nullptr ? std::string("?") : escaped(of); };
    registration.refused = "operator " + text(op->domain) + "::" + text(op->name) + ": " + problem;
    return 1;
  }
  auto made = std::make_unique<CustomOp>();
  made->def = *op;
  made->domain = op->domain;
  made->name = op->name;
  made->summary = op->summary == nullptr ? "" : escaped(op->summary);
  made->title = made->domain + "::" + made->name;
  registration.ops.push_back(std::move(made));
  return 0;
}

using Entry = int (*)(gradloom_op_registry*);

// Without a path between slashes the system would look elsewhere too.
Result<void*> entry_of(const std::string& path, const std::string& label) {
  void* const handle = dlopen(std::filesystem::absolute(path).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = dlerror();
    return Error{Errc::bad_input, label + " cannot be loaded: " + escaped(why == nullptr ? "" : why)};
  }
  void* const entry = dlsym(handle, "gradloom_register_ops");
  if (entry != nullptr) return entry;
  dlclose(handle);
  return Error{Errc::bad_input, label + " exports no gradloom_register_ops (gradloom_op.h)"};
}

}  // namespace

Result<std::string> load_op_library(const std::string& path) {
  const std::lock_guard lock(adding);
  const std::string label = "operator library " + escaped(path);
  const Result<std::string> hash = hash_file_hex(path);
  if (!hash) return with_context(hash.error(), "--ops");
  for (const OpLibrary& library : libraries())
    if (library.hash == *hash) return *hash;
  const auto entry = reinterpret_cast<Entry>(TRY(entry_of(path, label)));
  Registration registration;
  registration.version = GRADLOOM_OP_VERSION;
  registration.add = add;
  const int code = entry(&registration);
  if (!registration.refused.empty()) return Error{Errc::bad_input, label + ": " + registration.refused};
  if (code != 0)
    return Error{Errc::bad_input, label + ": gradloom_register_ops returned " + std::to_string(code)};
  if (registration.ops.empty()) return Error{Errc::bad_input, label + " adds no operator"};
  std::size_t count = op_count.load();
  if (count + registration.ops.size() > kMostCustomOps)
    return Error{Errc::limit,
                 label + ": more than " + std::to_string(kMostCustomOps) + " operators of libraries"};
  for (auto& op : registration.ops) {
    make_custom_rows(*op, count);
    custom_op_table[count++] = op.release();
  }
  op_count = count;
  libraries().push_back({path, *hash});
  return *hash;
}

std::vector<OpLibrary> op_libraries() {
  const std::lock_guard lock(adding);
  return libraries();
}

std::vector<const OpDef*> custom_ops() {
  std::vector<const OpDef*> rows;
  const std::size_t count = op_count.load();
  for (std::size_t i = 0; i < count; ++i) rows.push_back(&custom_op_table[i]->forward);
  return rows;
}

const OpDef* find_custom_op(const std::string& name, const std::string& domain, int opset) {
  const std::size_t count = op_count.load();
  for (std::size_t i = 0; i < count; ++i) {
    const CustomOp& op = *custom_op_table[i];
    if (op.name == name && op.domain == domain && op.def.version <= opset) return &op.forward;
  }
  return nullptr;
}

bool is_custom(const OpDef& op) {
  if (is_host_call(op)) return true;
  const std::size_t count = op_count.load();
  for (std::size_t i = 0; i < count; ++i)
    if (&op == &custom_op_table[i]->forward || &op == &custom_op_table[i]->backward) return true;
  return false;
}

}  // namespace gradloom
