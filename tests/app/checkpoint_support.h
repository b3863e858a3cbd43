// A small checkpoint, and bytes of files, for tests of what becomes of them.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

#include "app/checkpoint.h"

namespace gradloom {

inline Checkpoint small_checkpoint(std::int64_t step) {
  Checkpoint c;
  c.step = step;
  c.next_batch = 2 * step;
  c.seed = ~std::uint64_t{0};
  c.made_steps = step - 1;
  c.loss_scale = LossScaleState{0.1, 3, 1};
  c.early_stop = EarlyStop::State{.best_step = 8, .worse = 2, .best_loss = 1.0 / 3, .last_step = 9};
  c.recipe.model = "/models/m.onnx";
  c.recipe.model_hash = std::string(32, 'a');
  c.recipe.steps = 100;
  const auto number = static_cast<double>(step);
  c.model.tensors["w"] = Tensor::from_f64(DType::f32, {2, 2}, {1, 2, 3, number});
  c.model.metadata = {{"format", "pt"}};
  c.optimizer.tensors["w.exp_avg"] = Tensor::from_f64(DType::f32, {2, 2}, {4, 5, 6, number});
  return c;
}

inline std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace gradloom
