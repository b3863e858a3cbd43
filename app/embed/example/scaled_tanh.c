/* An operator of your own: y = scale tanh(x), with its gradient dx = dy (scale - y y / scale).
 *
 *   cc -std=c11 -O2 -shared -fPIC scaled_tanh.c -o scaled_tanh.so -lm
 *   gradloom train model.onnx --ops ./scaled_tanh.so
 *
 * In the model: a node ScaledTanh of domain my.domain, whose attribute `scale` (1) is a float other than 0. */
#include <gradloom_op.h>
#include <math.h>

enum { PART = 4096 }; /* elements; whatever the number of threads, so that nothing depends on it */

typedef struct {
  const gradloom_op_call* call;
  double scale;
  int64_t count;
} work;

static work work_of(const gradloom_op_call* call) {
  work w = {call, call->attribute_float(call->node, "scale", 1.0), 1};
  int32_t d;
  for (d = 0; d < call->outputs[0].rank; ++d) w.count *= call->outputs[0].dims[d];
  return w;
}

/* Inputs of forward: x. Of backward: x, y, dy, of which x is absent, because nothing reads it. */
#define KERNELS(T, TANH)                                                                     \
  static void forward_##T(void* context, int64_t begin, int64_t end) {                       \
    const work* w = (const work*)context;                                                    \
    const T *x = (const T*)w->call->inputs[0].data, scale = (T)w->scale;                     \
    T* y = (T*)w->call->outputs[0].data;                                                     \
    int64_t i, last = end * PART < w->count ? end * PART : w->count;                         \
    for (i = begin * PART; i < last; ++i) y[i] = scale * TANH(x[i]);                         \
  }                                                                                          \
  static void backward_##T(void* context, int64_t begin, int64_t end) {                      \
    const work* w = (const work*)context;                                                    \
    const T *y = (const T*)w->call->inputs[1].data, *dy = (const T*)w->call->inputs[2].data; \
    const T scale = (T)w->scale;                                                             \
    T* dx = (T*)w->call->outputs[0].data;                                                    \
    int64_t i, last = end * PART < w->count ? end * PART : w->count;                         \
    for (i = begin * PART; i < last; ++i) dx[i] = dy[i] * (scale - y[i] * y[i] / scale);     \
  }
KERNELS(float, tanhf)
KERNELS(double, tanh)

static void forward(const gradloom_op_call* call) {
  work w = work_of(call);
  int is_f64 = call->outputs[0].dtype == GRADLOOM_OP_F64;
  call->parallel((w.count + PART - 1) / PART, is_f64 ? forward_double : forward_float, &w);
}

static void backward(const gradloom_op_call* call) {
  work w = work_of(call);
  int is_f64 = call->outputs[0].dtype == GRADLOOM_OP_F64;
  call->parallel((w.count + PART - 1) / PART, is_f64 ? backward_double : backward_float, &w);
}

int gradloom_register_ops(gradloom_op_registry* registry) {
  const gradloom_op op = {
      .made_for = GRADLOOM_OP_VERSION,
      .domain = "my.domain",
      .name = "ScaledTanh",
      .summary = "scale tanh(x)",
      .version = 1,
      .min_inputs = 1,
      .max_inputs = 1,
      .outputs = 1,
      .dtypes = GRADLOOM_OP_TAKES(GRADLOOM_OP_F32) | GRADLOOM_OP_TAKES(GRADLOOM_OP_F64),
      .flags = GRADLOOM_OP_IN_PLACE,
      .forward = forward,
      .backward = backward,
      .backward_reads_outputs = 1,
  };
  return registry->add(registry, &op);
}
