#include "engine/ops/channel_blocks.h"

#include "engine/ops/preparation.h"
#include "engine/ops/dims.h"

namespace gradloom {

Shape spatial_of(const Shape& shape, std::int64_t block) {
  return {shape.begin() + 2, shape.end() - (block > 1 ? 1 : 0)};
}

Result<std::int64_t> block_of(const Attrs& attrs, const char* name, const Shape& shape, const char* what) {
  const std::int64_t block = attrs.integer(name, 1);
  if (block < 1) return infer_error(std::string(name) + " is " + std::to_string(block));
  if (block == 1) return block;
  if (shape.size() < 4 || shape.back() != block)
    return infer_error(std::string(what) + " " + to_string(shape) + " is not in blocks of " +
                       std::to_string(block) + " channels");
  if (shape[1] >= 0) TRY(multiply_dims({shape[1], block}));
  return block;
}

Status require_layout(kernels::Target target, std::int64_t block) {
  if (!kernels::has_channel_blocks(target) && block > 1) return no_kernel("no kernel for channels in blocks");
  return {};
}

Shape plain_shape(Shape shape, std::int64_t block) {
  if (block == 1) return shape;
  shape.pop_back();
  if (shape[1] >= 0) shape[1] *= block;
  return shape;
}

Result<Shape> blocked_shape(Shape shape, std::int64_t block) {
  if (block == 1) return shape;
  if (shape[1] < 0 || shape[1] % block != 0)
    return infer_error(to_string(shape) + " cannot be in blocks of " + std::to_string(block) + " channels");
  shape[1] /= block;
  shape.push_back(block);
  return shape;
}

}  // namespace gradloom
