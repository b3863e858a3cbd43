// Parameters by name in files: .safetensors, as PyTorch users exchange them, or NumPy's .npz. What is saved is what
// `load_state_dict` takes, and what it saved is loaded: trained and frozen parameters, running statistics, buffers.
// Errors: those of the formats; Errc::bad_input for tensors that are not the model's, naming file and tensor.
#pragma once

#include <map>
#include <string>

#include "engine/base/safetensors.h"
#include "engine/onnx/import.h"

namespace gradloom {

struct ParameterFile {
  std::string path;
  std::map<std::string, Tensor> tensors;
  // Tied tensors that are in the file once: the names that were left out, and those that are there
  // (safetensors.torch.save_model writes them so).
  std::map<std::string, std::string> same;
};

bool is_safetensors_name(const std::string& path);  // by its end, else .npz is meant
// By its end, too: .npz, .npy or safetensors
Result<ParameterFile> read_parameter_file(const std::string& path);
ParameterFile parameter_file(const std::string& path, Safetensors contents);

// The parameters with the model's buffers (constants that a module has names for) and the names of tied copies.
Safetensors with_buffers(const std::map<std::string, Tensor>& parameters, const ImportedModel& model);

// Makes the file's tensors the initial contents of the model's parameters and running statistics. Every one of
// them must be there in its shape; floats of another width are converted. Tensors that the model has no place for
// are told in a note or, with `exact`, an error; buffers, which stay as the model has them, are where they differ.
Status set_parameters(ImportedModel& model, const ParameterFile& file, bool exact);

// A tensor of a file as `type` wants it, `called` in errors: equal shapes; a float of another width is converted, and
// so are types that the format lacks (safetensors_type).
Result<Tensor> tensor_as(const Tensor& tensor, const Type& type, const std::string& called);

}  // namespace gradloom
