/* gradloom_op.h: operators of your own, in a shared library that Gradloom loads where its user names it:
 *
 *   cc -std=c11 -O2 -shared -fPIC my_ops.c -o my_ops.so
 *   gradloom train model.onnx --ops my_ops.so
 *
 * The library exports gradloom_register_ops, which adds the operators; it links nothing of Gradloom. In a model an
 * operator is a node of its domain and name, of an opset of that domain that is at least the operator's version.
 * Plain C. What an added operator points to (texts, functions) lives as long as the process.
 *
 * An operator is pure: its results hang on inputs and attributes alone, and the same call gives the same bits for any
 * number of threads. So a pass may merge two equal nodes, run one twice to save memory, or drop one that nothing
 * reads. Operators that draw random numbers, keep something or write somewhere cannot be made here. Its functions may
 * be called from several threads at once; kernels do not fail, and forward and backward are best without malloc.
 */
#ifndef GRADLOOM_OP_H
#define GRADLOOM_OP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when anything here changes; an operator made for another one is refused. */
#define GRADLOOM_OP_VERSION 1

enum { GRADLOOM_OP_MAX_RANK = 16, GRADLOOM_OP_MAX_INPUTS = 16, GRADLOOM_OP_MAX_OUTPUTS = 8 };

/* Element types, with the numbers of ONNX's TensorProto.DataType. */
enum {
  GRADLOOM_OP_F32 = 1,
  GRADLOOM_OP_U8 = 2,
  GRADLOOM_OP_I8 = 3,
  GRADLOOM_OP_I32 = 6,
  GRADLOOM_OP_I64 = 7,
  GRADLOOM_OP_BOOL = 9, /* a byte, 0 or 1 */
  GRADLOOM_OP_F16 = 10,
  GRADLOOM_OP_F64 = 11,
  GRADLOOM_OP_BF16 = 16
};

/* Row-major and contiguous. While shapes are inferred a dim below 0 is a size that is not known yet: equal numbers are
 * equal sizes, it may be copied to an output, and nothing can be computed with it. In kernels no dim is negative.
 * `data` is null in `shape` and `workspace`, and where the tensor is absent; that of inputs is not to be written. */
typedef struct gradloom_op_tensor {
  void* data;
  int32_t present; /* 0: an omitted input, a result that nobody wants, a gradient that is zero */
  int32_t dtype;
  int32_t rank;
  int64_t dims[GRADLOOM_OP_MAX_RANK];
} gradloom_op_tensor;

typedef struct gradloom_op_call {
  /* shape, workspace, forward: `max_inputs` inputs and `outputs` outputs.
   * backward, backward_workspace: the inputs, then the outputs, then the gradient of each output; the results are the
   * gradients of the inputs, each of its input's type and to be written whole where present. */
  const gradloom_op_tensor* inputs;
  gradloom_op_tensor* outputs;
  int32_t input_count, output_count;
  void* workspace; /* aligned to 64 bytes, contents undefined; kernels alone */
  int32_t threads; /* that `parallel` may use */
  const void* node;
  /* Attributes of the node; `fallback` where it has none of that name and type. */
  int64_t (*attribute_int)(const void* node, const char* name, int64_t fallback);
  double (*attribute_float)(const void* node, const char* name, double fallback);
  const char* (*attribute_text)(const void* node, const char* name, const char* fallback);
  /* How many there are; the first `room` of them go to `values`, which may be null where room is 0. */
  size_t (*attribute_ints)(const void* node, const char* name, int64_t* values, size_t room);
  size_t (*attribute_floats)(const void* node, const char* name, double* values, size_t room);
  /* body(context, begin, end) for ranges that cover [0, parts), on Gradloom's threads; returns when all are done. */
  void (*parallel)(int64_t parts, void (*body)(void* context, int64_t begin, int64_t end), void* context);
} gradloom_op_call;

/* What `dtypes` is made of: GRADLOOM_OP_TAKES(GRADLOOM_OP_F32) | .. */
#define GRADLOOM_OP_TAKES(dtype) (1u << (dtype))

/* Flags. IN_PLACE: the first output may be written over input 0, where that has its type and nothing else reads it;
 * forward reads each element before it writes there. */
enum { GRADLOOM_OP_IN_PLACE = 1 };

typedef struct gradloom_op {
  uint32_t made_for;   /* GRADLOOM_OP_VERSION */
  const char* domain;  /* letters, digits, '.', '_' and '-'; not ONNX's or Gradloom's */
  const char* name;    /* letters, digits and '_' */
  const char* summary; /* one line, for `gradloom ops` and the window */
  int32_t version;     /* first opset of the domain that has it, from 1 */
  int32_t min_inputs;  /* a node may omit the inputs behind these, */
  int32_t max_inputs;
  int32_t outputs; /* and the outputs behind the first */
  uint32_t dtypes; /* of inputs and outputs; f16 and bf16 are computed in f32 where they are not among them.
                      `verify` and reference runs need f64. */
  uint32_t flags;
  /* Sets dtype, rank and dims of each output. Returns null, or one line that says why the inputs do not fit. Null:
   * each output has the type of input 0. */
  const char* (*shape)(gradloom_op_call* call);
  size_t (*workspace)(const gradloom_op_call* call); /* bytes; null: none */
  void (*forward)(const gradloom_op_call* call);
  /* Null: the inputs have no gradient, and a training that needs one is refused. */
  void (*backward)(const gradloom_op_call* call);
  size_t (*backward_workspace)(const gradloom_op_call* call);
  /* Bit i: backward reads input i, output i. What it does not read is not kept for it, and may be absent there. */
  uint32_t backward_reads_inputs, backward_reads_outputs;
} gradloom_op;

typedef struct gradloom_op_registry {
  uint32_t version; /* GRADLOOM_OP_VERSION of the program */
  /* Copies the struct. Returns 0, or 1 where the operator cannot be: the library is then refused and the reason told. */
  int (*add)(struct gradloom_op_registry* registry, const gradloom_op* op);
} gradloom_op_registry;

/* To be exported by the library. Anything but 0: it is refused. */
int gradloom_register_ops(gradloom_op_registry* registry);

#ifdef __cplusplus
}
#endif
#endif
