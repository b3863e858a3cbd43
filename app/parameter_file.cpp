#include "app/parameter_file.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "engine/base/npz.h"
#include "engine/base/text.h"
#include "engine/onnx/repair/made_up_name.h"

namespace gradloom {
namespace {

constexpr std::size_t kMostNamed = 5;

// "'a', 'b', .. (7 in all)"
std::string names_text(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMostNamed); ++i)
    text += (i > 0 ? ", '" : "'") + escaped(names[i]) + "'";
  return names.size() > kMostNamed ? text + ", .. (" + std::to_string(names.size()) + " in all)" : text;
}

// The model's constants by name.
std::map<std::string_view, const Tensor*> constants_of(const Graph& graph) {
  std::map<std::string_view, const Tensor*> constants;
  for (const Value& v : graph.values)
    if (v.role == Role::constant && v.data.defined()) constants[v.name] = &v.data;
  return constants;
}

// A name that a module may have given to a buffer.
bool may_be_buffer(const std::string& name) {
  return !is_made_up(name) && name.find_first_of("/:") == std::string::npos;
}

// The tensor of the file for a name of the model: its own, or that of a weight tied to it.
const Tensor* find_tensor(const ParameterFile& file, const ImportedModel& model, const std::string& name) {
  const auto own = file.tensors.find(name);
  if (own != file.tensors.end()) return &own->second;
  if (const auto kept = file.same.find(name); kept != file.same.end())
    if (const auto it = file.tensors.find(kept->second); it != file.tensors.end()) return &it->second;
  for (const TiedCopy& tied : model.tied_copies)
    if (const auto it = file.tensors.find(tied.copy);
        tied.original == name && !tied.transposed && it != file.tensors.end())
      return &it->second;
  return nullptr;
}

Error missing(const ParameterFile& file, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [other, tensor] : file.tensors) names.push_back(other);
  const std::string nearest = nearest_name(name, names);
  return Error{Errc::bad_input,
               escaped(file.path) + ": no tensor for parameter '" + escaped(name) + "'" +
                   (nearest.empty() ? "; it has none at all"
                                    : "; the nearest name in it is '" + escaped(nearest) + "'")};
}

// What the file has and the model takes nothing from.
Status check_rest(ImportedModel& model, const ParameterFile& file, const std::set<std::string>& taken,
                  bool exact) {
  const auto constants = constants_of(model.graph);
  std::vector<std::string> unknown, differing;
  for (const auto& [name, tensor] : file.tensors) {
    const bool copy = std::any_of(model.tied_copies.begin(), model.tied_copies.end(),
                                  [&name = name](const TiedCopy& tied) { return tied.copy == name; });
    if (copy || taken.count(name) != 0) continue;
    const auto constant = constants.find(name);
    if (constant == constants.end()) {
      unknown.push_back(name);
      continue;
    }
    const Tensor own = TRY(constant->second->loaded());
    const auto other = tensor_as(tensor, own.type(), name);
    if (!other || !bit_equal(own, *other)) differing.push_back(name);
  }
  if (exact && !unknown.empty())
    return Error{Errc::bad_input, escaped(file.path) + ": the model has no parameter " + names_text(unknown)};
  if (!unknown.empty())
    model.notes.push_back(file.path + ": the model has no parameter for " + names_text(unknown));
  if (!differing.empty())
    model.notes.push_back(
        file.path +
        ": buffers that stay as the model has them, though the file has others: " + names_text(differing));
  return {};
}

}  // namespace

bool is_safetensors_name(const std::string& path) { return path.ends_with(".safetensors"); }

ParameterFile parameter_file(const std::string& path, Safetensors contents) {
  ParameterFile file{path, std::move(contents.tensors), std::move(contents.metadata)};
  // Other metadata ("format": "pt") names no tensor.
  std::erase_if(file.same, [&](const auto& row) { return file.tensors.count(row.second) == 0; });
  return file;
}

Result<ParameterFile> read_parameter_file(const std::string& path) {
  if (path.ends_with(".npz") || path.ends_with(".npy")) {
    auto arrays = TRY(read_npz(path));
    return ParameterFile{path, std::move(arrays), {}};
  }
  return parameter_file(path, TRY(read_safetensors(path)));
}

Safetensors with_buffers(const std::map<std::string, Tensor>& parameters, const ImportedModel& model) {
  Safetensors out;
  out.tensors = parameters;
  out.metadata = {{"format", "pt"}};
  const auto constants = constants_of(model.graph);
  for (const InitializerVerdict& row : model.initializers)
    if (const auto it = constants.find(row.name); it != constants.end() && may_be_buffer(row.name))
      out.tensors.emplace(row.name, *it->second);
  for (const TiedCopy& tied : model.tied_copies)
    if (!tied.transposed && !is_made_up(tied.copy) && out.tensors.count(tied.original) != 0)
      out.metadata[tied.copy] = tied.original;
  return out;
}

Result<Tensor> tensor_as(const Tensor& tensor, const Type& type, const std::string& called) {
  if (tensor.type() == type) return tensor;
  const DType from = tensor.dtype(), to = type.dtype;
  const bool convertible = from == to || (is_float(from) && is_float(to)) || from == safetensors_type(to);
  if (tensor.shape() != type.shape || !convertible)
    return Error{Errc::bad_input,
                 called + " is " + to_string(tensor.type()) + "; expected " + to_string(type)};
  return TRY(tensor.loaded()).cast(to);
}

Status set_parameters(ImportedModel& model, const ParameterFile& file, bool exact) {
  Graph& graph = model.graph;
  std::vector<ValueId> ids = graph.parameters;
  for (ValueId id = 0; id < graph.values.size(); ++id)
    if (graph.values[id].role == Role::state) ids.push_back(id);  // running statistics
  std::set<std::string> taken;
  for (const ValueId id : ids) {
    Value& value = graph.values[id];
    const Tensor* const tensor = find_tensor(file, model, value.name);
    if (tensor == nullptr) return missing(file, value.name);
    value.data =
        TRY(tensor_as(*tensor, value.type, escaped(file.path) + ": tensor '" + escaped(value.name) + "'"));
    taken.insert(value.name);
  }
  return check_rest(model, file, taken, exact);
}

}  // namespace gradloom
