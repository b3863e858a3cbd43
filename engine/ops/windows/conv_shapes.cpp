// What Conv and its two gradient rows share; see conv_shapes.h.
#include "engine/ops/windows/conv_shapes.h"

#include <algorithm>
#include <exception>
#include <memory>

#include "engine/ops/dims.h"
#include "engine/ops/preparation.h"
#include "kernels/prepared/bf16.h"
#include "kernels/launcher.h"

namespace gradloom {

namespace {

// oneDNN counts positions of a tensor in 32 bits, rounded up to blocks.
Status require_countable(const kernels::ConvolutionDesc& d) {
  constexpr double kMost = 1 << 29;
  const auto product = [](std::initializer_list<std::int64_t> dims) {
    double all = 1;
    for (const std::int64_t dim : dims) all *= static_cast<double>(dim);
    return all;
  };
  const std::int64_t reach[] = {d.d + d.pad_front + d.pad_back, d.h + d.pad_top + d.pad_bottom,
                                d.w + d.pad_left + d.pad_right};
  for (const double count :
       {product({reach[0], reach[1], reach[2]}), product({d.od, d.oh, d.ow}), product({d.c, d.t, d.r, d.s}),
        product({d.k, d.t, d.r, d.s}), product({d.n}), product({d.stride_d, d.stride_h, d.stride_w}),
        product({d.dilation_d * d.t, d.dilation_h * d.r, d.dilation_w * d.s})})
    if (count > kMost)
      return no_kernel("no CPU kernel for a convolution over 2^29 positions or weights of a channel");
  return {};
}

kernels::ConvolutionDesc desc_of(DType dtype, const ConvolutionShape& shape, const SlidingWindow& w) {
  const Shape input = spatial_3d(spatial_of(shape.x));
  kernels::ConvolutionDesc desc{};
  desc.dtype = dtype;
  desc.n = shape.x[0];
  desc.c = shape.x[1];
  desc.k = shape.w[0];
  desc.d = input[0];
  desc.h = input[1];
  desc.w = input[2];
  desc.t = w.kernel[0];
  desc.r = w.kernel[1];
  desc.s = w.kernel[2];
  desc.od = w.out[0];
  desc.oh = w.out[1];
  desc.ow = w.out[2];
  desc.stride_d = w.stride[0];
  desc.stride_h = w.stride[1];
  desc.stride_w = w.stride[2];
  desc.pad_front = w.pad_begin[0];
  desc.pad_top = w.pad_begin[1];
  desc.pad_left = w.pad_begin[2];
  desc.pad_back = w.pad_end[0];
  desc.pad_bottom = w.pad_end[1];
  desc.pad_right = w.pad_end[2];
  desc.dilation_d = w.dilation[0];
  desc.dilation_h = w.dilation[1];
  desc.dilation_w = w.dilation[2];
  desc.groups = shape.groups;
  desc.bias = shape.bias;
  desc.x_block = shape.x_block;
  desc.y_block = shape.y_block;
  return desc;
}

// By the device's own kernel, or its library.
Kernel launched(const NodeTypes& node, kernels::ConvolutionKind kind, const kernels::ConvolutionDesc& desc) {
  const kernels::ConvolutionArgs layout{desc, kind};
  const std::size_t workspace_bytes =
      std::max(kernels::workspace_bytes(node.target, layout),
               node.dnn_library ? kernels::library_workspace_bytes(layout) : std::size_t{0});
  return Kernel{"convolution", workspace_bytes,
                [layout, workspace_bytes, bias = desc.bias](const LaunchArgs& args) {
                  kernels::ConvolutionArgs a = layout;
                  a.a = args.inputs[0];
                  a.b = args.inputs[1];
                  a.bias = bias ? args.inputs[2] : nullptr;
                  a.out = args.outputs[0];
                  a.workspace = args.workspace;
                  a.workspace_bytes = workspace_bytes;
                  args.on.convolution(a);
                }};
}

// By oneDNN.
Result<Kernel> prepared(kernels::ConvolutionKind kind, const kernels::ConvolutionDesc& desc) {
  std::shared_ptr<kernels::Convolution> convolution;
  try {
    convolution = kernels::Convolution::create(desc, kind);
  } catch (const std::exception& e) {
    return no_kernel(e.what());
  }
  Kernel kernel;
  kernel.name = "convolution " + convolution->implementation();
  kernel.workspace_bytes = convolution->workspace_bytes();
  kernel.run = [convolution, bias = desc.bias](const LaunchArgs& args) {
    convolution->run(args.inputs[0], args.inputs[1], bias ? args.inputs[2] : nullptr, args.outputs[0],
                     args.workspace);
  };
  return kernel;
}

}  // namespace

Result<Kernel> prepare_convolution(const NodeTypes& node, kernels::ConvolutionKind kind,
                                   const ConvolutionShape& shape) {
  const kernels::Target target = node.target;
  const DType dtype = node.inputs[0].dtype;
  const bool low =
      kernels::has_prepared_kernels(target) && dtype == DType::bf16 && kernels::has_bf16_products();
  if (!low) TRY(require_kernel_type(target, dtype));
  TRY(require_layout(target, std::max(shape.x_block, shape.y_block)));
  const SlidingWindow w = TRY(as_3d(shape.window));
  const Shape& out = kind == kernels::ConvolutionKind::forward         ? shape.y
                     : kind == kernels::ConvolutionKind::backward_data ? shape.x
                                                                       : shape.w;
  const std::int64_t count = element_count(out);
  if (count == 0) return no_work("convolution");
  if (element_count(shape.x) == 0 || element_count(shape.w) == 0 || element_count(shape.y) == 0) {
    if (shape.bias) return no_kernel("no kernel for empty operands with a bias");
    return Kernel{"convolution (empty)", 0, [dtype, count](const LaunchArgs& args) {
                    const double zero = 0;  // all bits zero, f32 or f64
                    args.on.fill({dtype_bytes(dtype), count, &zero, args.outputs[0]});
                  }};
  }
  const kernels::ConvolutionDesc desc = desc_of(dtype, shape, w);
  if (!kernels::has_prepared_kernels(target)) return launched(node, kind, desc);
  if (dtype != DType::f64) TRY(require_countable(desc));
  return prepared(kind, desc);
}

void copy_blocks(const Attrs& from, Attrs& to) {
  for (const char* name : {"x_block", "y_block"})
    if (from.has(name)) to.set(name, from.integer(name));
}

double convolution_flops(const Shape& y, const Shape& w) {
  return 2.0 * static_cast<double>(element_count(y)) * static_cast<double>(dim_product(w, 1, w.size()));
}

Result<Shape> shape_attribute(const Attrs& attrs, const char* name, std::size_t rank) {
  Shape shape = attrs.integers(name);
  if (shape.size() != rank || rank < 3 || !is_static(shape))
    return infer_error(std::string(name) + " " + to_string(shape) + " does not fit " + std::to_string(rank) +
                       " dims");
  return shape;
}

}  // namespace gradloom
