// The kinds of data behind make_batches, and what they share. Errors name the file, and in it the array, the input
// and the element.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sessions/data.h"

namespace gradloom {

bool is_real(DType dtype);              // floats of any width
bool is_integer(DType dtype);           // of any width; no booleans
std::int64_t dtype_limit(DType dtype);  // largest value + 1, as far as it fits an int64
void store_integer(Tensor& tensor, std::int64_t i, std::int64_t value);
// Uniform in [0, bound) from 32 random bits: multiplication; the bias is below bound / 2^32.
std::int64_t scaled(std::uint32_t bits, std::uint64_t bound);
std::string input_text(const InputSpec& input);      // "input x (f32[8, 3])"
Tensor batch_of(const Tensor& all, std::int64_t i);  // entry `i` along the first axis

// Whether what an array of the type holds can be fed to the input, whatever its shape is.
Status accept_dtype(const Type& type, const InputSpec& input);
// The contents as the input wants them: converted, integers within its limits. `first`: number of the array's element
// that the tensor begins with.
Result<Tensor> accept_contents(const Tensor& part, const InputSpec& input, std::int64_t first = 0);

using Batches = Result<std::unique_ptr<BatchSource>>;
Batches open_npz(const std::string& file, const std::vector<InputSpec>& inputs, std::uint64_t seed,
                 DataOrder order);
Batches open_npz_folder(const std::string& folder, const std::vector<InputSpec>& inputs, std::uint64_t seed,
                        DataOrder order);
Batches open_npy(const std::string& files, const std::vector<InputSpec>& inputs, std::uint64_t seed,
                 DataOrder order);
// `kind`: "tokens:" or "tokens{bytes=2}:".
Batches open_tokens(const std::string& kind, const std::string& file, const std::vector<InputSpec>& inputs,
                    std::uint64_t seed, DataOrder order);
Result<std::int64_t> token_bytes(const std::string& kind);  // of one token

// The files of npy:, by input.
Result<std::vector<std::pair<std::string, std::string>>> npy_files(const std::string& text);

}  // namespace gradloom
