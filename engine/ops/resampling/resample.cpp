// Resample(x, begin, index, weight) (ours), attribute axis; the gradient of Resize and of Pad:
//   y[.., j, ..] = sum over e in [begin[j], begin[j + 1]) of weight[e] * x[.., index[e], ..]
// begin: i32 [out + 1], index: i32, weight: f64, all known when planning. Three more inputs are the tables of
// the axis behind `axis`, and both axes are resampled at once.
// The CPU takes two neighbouring axes in one pass over memory; for GPUs they are one pass each.
#include "engine/ops/resampling/resample.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "engine/ops/known_bytes.h"
#include "engine/ops/copies.h"
#include "engine/ops/inference.h"
#include "engine/ops/preparation.h"
#include "engine/ops/samples.h"
#include "engine/ops/rows.h"
#include "kernels/launcher.h"

namespace gradloom::resampling {

bool AxisTable::selects() const {
  for (std::size_t j = 0; j < begin.size(); ++j)
    if (begin[j] != static_cast<std::int32_t>(j)) return false;
  return std::all_of(weight.begin(), weight.end(), [](double w) { return w == 1; });
}

bool AxisTable::identity() const {
  if (in != out() || !selects()) return false;
  for (std::size_t j = 0; j < index.size(); ++j)
    if (index[j] != static_cast<std::int32_t>(j)) return false;
  return true;
}

AxisTable AxisTable::transposed() const {
  AxisTable table;
  table.in = out();
  table.begin.assign(static_cast<std::size_t>(in) + 1, 0);
  for (const std::int32_t at : index) ++table.begin[static_cast<std::size_t>(at) + 1];
  for (std::size_t j = 1; j < table.begin.size(); ++j) table.begin[j] += table.begin[j - 1];
  table.index.resize(index.size());
  table.weight.resize(index.size());
  std::vector<std::int32_t> next(table.begin.begin(), table.begin.end() - 1);
  for (std::size_t j = 0; j + 1 < begin.size(); ++j)
    for (auto e = static_cast<std::size_t>(begin[j]); e < static_cast<std::size_t>(begin[j + 1]); ++e) {
      const auto to = static_cast<std::size_t>(next[static_cast<std::size_t>(index[e])]++);
      table.index[to] = static_cast<std::int32_t>(j);
      table.weight[to] = weight[e];
    }
  return table;
}

namespace {

// Whether two axes are taken at once with so many elements behind them: none, or those of blocks of channels.
// More are long rows, for which it is one axis after the other.
bool is_inner(std::int64_t inner) { return inner == 1 || (inner % 16 == 0 && inner <= 64); }

// Axes that change, in the order to go through them: the smallest result first, and equal ones so that the
// last axis, whose elements are mixed one by one, has the least to do.
std::vector<std::size_t> order_of(const Tables& tables) {
  std::vector<std::size_t> order;
  for (std::size_t d = 0; d < tables.size(); ++d)
    if (tables[d] && !tables[d]->identity()) order.push_back(d);
  const auto growth = [&](std::size_t d) {
    return static_cast<double>(tables[d]->out()) /
           static_cast<double>(std::max<std::int64_t>(tables[d]->in, 1));
  };
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (growth(a) != growth(b)) return growth(a) < growth(b);
    return growth(a) > 1 ? a > b : a < b;
  });
  return order;
}

// Whether axis `d` and the one behind it are taken at once; `inner`: elements behind both.
bool are_planes(const Tables& tables, std::size_t d, std::int64_t inner) {
  const auto changes = [&](std::size_t i) { return tables[i] && !tables[i]->identity(); };
  return d + 1 < tables.size() && is_inner(inner) && changes(d) && changes(d + 1);
}

std::int64_t behind(const Shape& shape, std::size_t d) {
  return std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(d), shape.end(), std::int64_t{1},
                         std::multiplies<>());
}

// One pass over the axes of `tables`: the number of its axis, and whether it takes the one behind too.
struct Pass {
  std::size_t axis;
  bool planes;
};

// `planes`: two axes at once are possible. The last two that change are taken so, in front of the others
// where they shrink.
std::vector<Pass> passes_of(const Tables& tables, const Shape& x, bool planes) {
  std::vector<Pass> passes;
  for (const std::size_t d : order_of(tables)) passes.push_back({d, false});
  if (passes.size() < 2 || !planes) return passes;
  std::size_t last = 0;
  for (const Pass& pass : passes) last = std::max(last, pass.axis);
  if (!are_planes(tables, last - 1, behind(x, last + 1))) return passes;
  std::erase_if(passes, [&](const Pass& pass) { return pass.axis + 1 >= last; });
  const bool shrink =
      tables[last - 1]->out() * tables[last]->out() <= tables[last - 1]->in * tables[last]->in;
  passes.insert(shrink ? passes.begin() : passes.end(), {last - 1, true});
  return passes;
}

// A table in the known bytes.
struct KnownTable {
  std::int64_t in, out;
  std::size_t begin, index, weight;

  kernels::ResampleTable at(const char* known) const {
    return {in, out, reinterpret_cast<const std::int32_t*>(known + begin),
            reinterpret_cast<const std::int32_t*>(known + index),
            reinterpret_cast<const double*>(known + weight)};
  }
};

// One pass: one axis, or two.
struct Step {
  bool selects;
  std::int64_t outer, inner;
  std::vector<KnownTable> tables;
};

struct Slab {
  kernels::StridedCopyArgs args;
  std::int64_t offset;  // bytes
};

// Runs of positions that are outside, as copies of one value.
Result<std::vector<Slab>> slabs_of(const Outside& outside, const Type& y) {
  std::vector<Slab> slabs;
  const std::vector<std::int64_t> strides = dense_strides(y.shape);
  const auto bytes = static_cast<std::int64_t>(dtype_bytes(y.dtype));
  for (std::size_t d = 0; d < outside.rows.size(); ++d)
    for (std::size_t j = 0; j < outside.rows[d].size(); ++j) {
      if (!outside.rows[d][j]) continue;
      std::size_t end = j;
      while (end < outside.rows[d].size() && outside.rows[d][end]) ++end;
      CopyPlan plan{y.shape, std::vector<std::int64_t>(y.shape.size(), 0), strides};
      plan.dims[d] = static_cast<std::int64_t>(end - j);
      slabs.push_back({TRY(strided_copy_args(plan, static_cast<std::size_t>(bytes))),
                       static_cast<std::int64_t>(j) * strides[d] * bytes});
      j = end;
    }
  return slabs;
}

struct Prepared {
  DType dtype;
  std::vector<Step> steps;
  std::vector<Slab> slabs;
  KnownBytes known;
  std::size_t value = 0, buffers[2] = {};  // in the known bytes; starts in the workspace
  std::int64_t count = 0;                  // elements of x
};

void run(const Prepared& p, const LaunchArgs& launch) {
  char* const workspace = static_cast<char*>(launch.workspace);
  const char* const known = p.known.place(launch.on, workspace);
  const void* from = launch.inputs[0];
  for (std::size_t i = 0; i < p.steps.size(); ++i) {
    const Step& step = p.steps[i];
    void* const to = i + 1 == p.steps.size() ? launch.outputs[0] : workspace + p.buffers[i % 2];
    const kernels::ResampleTable t = step.tables[0].at(known);
    if (step.tables.size() == 2)
      launch.on.resample_planes({p.dtype, step.outer, step.inner, t, step.tables[1].at(known), from, to});
    else if (step.selects)
      launch.on.gather(
          {dtype_bytes(p.dtype), DType::i32, step.outer, t.in, step.inner, t.out, from, t.index, to});
    else
      launch.on.resample(
          {p.dtype, step.outer, t.in, t.out, step.inner, t.begin, t.index, t.weight, from, to});
    from = to;
  }
  if (p.steps.empty()) copy_elements(launch.on, p.dtype, p.count, from, launch.outputs[0]);
  for (const Slab& slab : p.slabs) {
    kernels::StridedCopyArgs args = slab.args;
    args.in = known + p.value;
    args.out = static_cast<char*>(launch.outputs[0]) + slab.offset;
    launch.on.strided_copy(args);
  }
}

}  // namespace

Result<Kernel> prepare(const char* name, const NodeTypes& types, Tables tables, const Outside& outside) {
  const Type &x = types.inputs[0], &y = types.outputs[0];
  if (element_count(y.shape) == 0) return no_work(name);
  auto p =
      std::make_shared<Prepared>(Prepared{x.dtype, {}, TRY(slabs_of(outside, y)), KnownBytes(types.target)});
  const Tensor value = Tensor::scalar(x.dtype, outside.value);
  p->value = p->known.add(value.data(), value.bytes());
  Shape shape = x.shape;
  std::size_t between[2] = {0, 0}, pass = 0;
  const bool planes =
      types.target == kernels::Target::cpu && (x.dtype == DType::f32 || x.dtype == DType::f64);
  for (const Pass& taken : passes_of(tables, x.shape, planes)) {
    Step step{!taken.planes && tables[taken.axis]->selects(), 0, 0, {}};
    if (!step.selects) TRY(require_kernel_type(types.target, x.dtype));
    for (std::size_t d = taken.axis; d <= taken.axis + (taken.planes ? 1 : 0); ++d) {
      const AxisTable& table = *tables[d];
      const AxisView view = axis_view(shape, static_cast<std::int64_t>(d));
      if (step.tables.empty()) step.outer = view.outer;
      step.inner = view.inner;
      step.tables.push_back({view.size, table.out(), step.selects ? 0 : p->known.add(table.begin),
                             p->known.add(table.index), step.selects ? 0 : p->known.add(table.weight)});
      shape[d] = table.out();
    }
    p->steps.push_back(std::move(step));
    between[pass % 2] = std::max(between[pass % 2], byte_size({x.dtype, shape}));
    ++pass;
  }
  p->buffers[0] = aligned_bytes(p->known.workspace_bytes());
  p->buffers[1] = p->buffers[0] + (pass > 1 ? aligned_bytes(between[0]) : 0);
  p->count = element_count(x.shape);
  Kernel kernel;
  kernel.name = name;
  kernel.workspace_bytes = p->buffers[1] + (pass > 2 ? aligned_bytes(between[1]) : 0);
  kernel.run = [p = std::shared_ptr<const Prepared>(p)](const LaunchArgs& launch) { run(*p, launch); };
  return kernel;
}

ValueId gradient(GraphBuilder& b, ValueId dy, const Tables& tables) {
  Tables back;
  for (const auto& table : tables) back.push_back(table ? std::optional(table->transposed()) : std::nullopt);
  const auto i32s = [&](const std::vector<std::int32_t>& values) {
    Tensor t(DType::i32, {static_cast<std::int64_t>(values.size())});
    std::copy(values.begin(), values.end(), t.mutable_as<std::int32_t>());
    return b.constant(std::move(t));
  };
  for (const Pass& taken : passes_of(back, b.shape(dy), true)) {
    std::vector<ValueId> inputs{dy};
    for (std::size_t d = taken.axis; d <= taken.axis + (taken.planes ? 1 : 0); ++d) {
      const AxisTable& table = *back[d];
      const Tensor weight =
          Tensor::from_f64(DType::f64, {static_cast<std::int64_t>(table.weight.size())}, table.weight);
      for (const ValueId v : {i32s(table.begin), i32s(table.index), b.constant(weight)}) inputs.push_back(v);
    }
    dy = b.op("Resample", std::move(inputs), {{"axis", static_cast<std::int64_t>(taken.axis)}});
  }
  return dy;
}

double flops(const Shape& x, const Tables& tables) {
  Shape shape = x;
  double total = 0;
  for (std::size_t d : order_of(tables)) {
    const AxisView v = axis_view(shape, static_cast<std::int64_t>(d));
    if (!tables[d]->selects())
      total += 2.0 * static_cast<double>(v.outer * v.inner) * static_cast<double>(tables[d]->index.size());
    shape[d] = tables[d]->out();
  }
  return total;
}

}  // namespace gradloom::resampling

namespace gradloom {
namespace {

using resampling::AxisTable;

// The table that inputs 1 to 3 hold, checked.
Result<AxisTable> table_of(const Tensor* begin, const Tensor* index, const Tensor* weight, std::int64_t in) {
  if (begin == nullptr || index == nullptr || weight == nullptr)
    return infer_error("the table must be known before running");
  if (begin->dtype() != DType::i32 || index->dtype() != DType::i32 || weight->dtype() != DType::f64 ||
      begin->count() < 1 || index->count() != weight->count())
    return infer_error("the table must be begin and index in i32, weight in f64");
  AxisTable table;
  table.in = in;
  for (std::int64_t e = 0; e < index->count(); ++e) {
    if (index->int_at(e) < 0 || index->int_at(e) >= in)
      return infer_error("an index of the table is out of range");
    table.add(index->int_at(e), weight->at(e));
  }
  table.begin.clear();
  for (std::int64_t j = 0; j < begin->count(); ++j) {
    const std::int64_t at = begin->int_at(j), before = table.begin.empty() ? 0 : table.begin.back();
    if (at < before || at > index->count() || (j == 0 && at != 0))
      return infer_error("the rows of the table are out of order");
    table.begin.push_back(static_cast<std::int32_t>(at));
  }
  return table;
}

// The tables of `axis` and, where there are two, of the one behind it; known(i): contents of input i.
template <class Known>
Result<resampling::Tables> tables_of(const Attrs& attrs, std::size_t inputs, const Shape& x,
                                     const Known& known) {
  const auto first = static_cast<std::size_t>(TRY(normalized_axis(attrs.integer("axis"), x.size())));
  if (inputs != 4 && inputs != 7) return infer_error("one table or two must be given");
  resampling::Tables tables(x.size());
  for (std::size_t i = 1, d = first; i < inputs; i += 3, ++d) {
    if (d >= x.size()) return infer_error("there is no axis behind the last one");
    if (x[d] < 0) return infer_error("the axis must have a known size");
    tables[d] = TRY(table_of(known(i), known(i + 1), known(i + 2), x[d]));
  }
  return tables;
}

Status infer_resample(InferContext& ctx) {
  TRY(require_inputs(ctx, ctx.has(4) ? 7 : 4));
  Shape y = ctx.shape(0);
  const auto tables =
      TRY(tables_of(ctx.attrs, ctx.has(4) ? 7 : 4, y, [&](std::size_t i) { return ctx.constant(i); }));
  for (std::size_t d = 0; d < y.size(); ++d)
    if (tables[d]) y[d] = tables[d]->out();
  ctx.outputs[0] = {ctx.dtype(0), y};
  return {};
}

// Sizes of one axis or two; the tables are inputs of the node, so they are in the memory of the device.
struct ResampleNode {
  DType dtype;
  AxisView first, second;  // of x
  std::int64_t out[2];
  bool cols_first;  // where it is a pass over each axis: the smaller result first

  // Input i to i + 2, of an axis of `in` elements.
  static kernels::ResampleTable table(const LaunchArgs& launch, std::size_t i, std::int64_t in,
                                      std::int64_t out) {
    return {in, out, static_cast<const std::int32_t*>(launch.inputs[i]),
            static_cast<const std::int32_t*>(launch.inputs[i + 1]),
            static_cast<const double*>(launch.inputs[i + 2])};
  }
  void one(const LaunchArgs& launch, const kernels::ResampleTable& t, std::int64_t outer, std::int64_t inner,
           const void* x, void* y) const {
    launch.on.resample({dtype, outer, t.in, t.out, inner, t.begin, t.index, t.weight, x, y});
  }
  // By way of the workspace.
  void two(const LaunchArgs& launch) const {
    const kernels::ResampleTable rows = table(launch, 1, first.size, out[0]),
                                 cols = table(launch, 4, second.size, out[1]);
    const void* const x = launch.inputs[0];
    void *const between = launch.workspace, *const y = launch.outputs[0];
    if (cols_first) {
      one(launch, cols, first.outer * rows.in, second.inner, x, between);
      one(launch, rows, first.outer, cols.out * second.inner, between, y);
    } else {
      one(launch, rows, first.outer, cols.in * second.inner, x, between);
      one(launch, cols, first.outer * rows.out, second.inner, between, y);
    }
  }
  void planes(const LaunchArgs& launch) const {
    launch.on.resample_planes({dtype, first.outer, second.inner, table(launch, 1, first.size, out[0]),
                               table(launch, 4, second.size, out[1]), launch.inputs[0], launch.outputs[0]});
  }
};

Result<Kernel> prepare_resample(const NodeTypes& types) {
  const Type &x = types.inputs[0], &y = types.outputs[0];
  TRY(require_kernel_type(types.target, x.dtype));
  const auto axis = TRY(normalized_axis(types.attrs.integer("axis"), x.shape.size()));
  const auto at = static_cast<std::size_t>(axis);
  Kernel kernel;
  kernel.name = "resample";
  ResampleNode node{x.dtype, axis_view(x.shape, axis), {}, {y.shape[at], 0}, false};
  if (!types.has(4)) {
    kernel.run = [node](const LaunchArgs& launch) {
      node.one(launch, ResampleNode::table(launch, 1, node.first.size, node.out[0]), node.first.outer,
               node.first.inner, launch.inputs[0], launch.outputs[0]);
    };
    return kernel;
  }
  node.second = axis_view(x.shape, axis + 1);
  node.out[1] = y.shape[at + 1];
  if (types.target == kernels::Target::cpu && resampling::is_inner(node.second.inner)) {
    kernel.run = [node](const LaunchArgs& launch) { node.planes(launch); };
    return kernel;
  }
  const std::int64_t rows_first = node.out[0] * node.second.size, cols_first = node.first.size * node.out[1];
  node.cols_first = cols_first < rows_first;
  kernel.workspace_bytes =
      static_cast<std::size_t>(node.first.outer * std::min(rows_first, cols_first) * node.second.inner) *
      dtype_bytes(x.dtype);
  kernel.run = [node](const LaunchArgs& launch) { node.two(launch); };
  return kernel;
}

Status grad_resample(GradContext& ctx) {
  if (!ctx.wants(0)) return {};
  const auto known = [&](std::size_t i) {
    const Value& v = ctx.b.graph().values[ctx.in(i)];
    return is_constant(ctx.b.graph(), ctx.in(i)) && v.data.defined() ? &v.data : nullptr;
  };
  const auto tables = TRY(tables_of(ctx.node.attrs, ctx.node.inputs.size(), ctx.shape(ctx.in(0)), known));
  ctx.set(0, resampling::gradient(ctx.b, ctx.grad(), tables));
  return {};
}

// One multiplication and addition per weight, for as many elements as the result has of each output.
Cost cost_resample(const NodeTypes& types) {
  Cost cost = default_cost(types);
  const auto count = [&](std::size_t i) { return static_cast<double>(element_count(types.inputs[i].shape)); };
  cost.flops = 0;
  for (std::size_t i = 1; i + 2 < types.inputs.size(); i += 3)
    cost.flops += 2 * static_cast<double>(element_count(types.outputs[0].shape)) /
                  std::max(1.0, count(i) - 1) * count(i + 1);
  return cost;
}

std::vector<Sample> resample_samples() {
  const auto known = [](DType dtype, const std::vector<double>& values) {
    SampleInput input = exact(dtype, {static_cast<std::int64_t>(values.size())}, values);
    input.constant = true;
    return input;
  };
  const SampleInput begin = known(DType::i32, {0, 2, 2, 5, 6}), index = known(DType::i32, {0, 1, 2, 1, 0, 2});
  const SampleInput weight = known(DType::f64, {0.5, 0.25, -1, 2, 0.125, 1});
  std::vector<Sample> list = {
      sample_of("rows", {{"axis", std::int64_t{0}}}, {floats({3, 5}), begin, index, weight}),
      sample_of("last axis", {{"axis", std::int64_t{-1}}}, {floats({2, 4, 3}), begin, index, weight}),
      sample_of("middle axis", {{"axis", std::int64_t{1}}}, {floats({2, 3, 70}), begin, index, weight}),
      sample_of("two axes", {{"axis", std::int64_t{1}}},
                {floats({2, 3, 3, 2}), begin, index, weight, known(DType::i32, {0, 1, 3}),
                 known(DType::i32, {2, 0, 1}), known(DType::f64, {0.5, -1, 2})})};
  return list;
}

}  // namespace

const OpDef resample_op = {.name = "Resample",
                           .domain = "gradloom",
                           .summary = "Sparse matrix times one axis: the gradient of Resize and Pad",
                           .min_inputs = 4,
                           .max_inputs = 7,
                           .infer = infer_resample,
                           .grad = grad_resample,
                           .cost = cost_resample,
                           .cpu = prepare_resample,
                           .gpu = prepare_resample,
                           .samples = resample_samples};

}  // namespace gradloom
