/* gradloom.h: Gradloom inside another program. Plain C (C89 and <stdint.h>); libgradloom.so exports what is declared here
 * and nothing else.
 *
 * Jobs train: a recipe, or a model with options, as the command `gradloom train` runs it. Modules compute: forward and
 * backward of a model as two calls, on the caller's memory, for a training loop that is somebody else's (PyTorch's).
 *
 * Codes. Every function returns GRADLOOM_OK (0) or an error code, the exit code that the command line has for the same
 * error; gradloom_last_error() then has one line that names what is wrong. On an error nothing is returned through
 * pointers. No exception and no signal crosses the border: out of memory is GRADLOOM_LIMIT, a broken invariant of ours
 * GRADLOOM_BUG (the handle refuses further work then).
 *
 * Words. Options are words of the command line, "--precision", "bf16": those of a recipe (docs/recipe.md), and those
 * that each function names. They are read as `gradloom train` reads them, with the same errors.
 *
 * Threads. All functions may be called from any thread. Calls on one handle follow one another; closing it while another
 * call on it runs is the caller's mistake. Handles do not know of each other; the threads that compute are shared by all
 * (gradloom_set_threads), and of two calls at the same time one has them and the other computes alone. After fork() the
 * child may use modules that no other thread was in.
 *
 * exit() while another thread is in a call may end in a crash inside oneDNN, whose own globals are destroyed then: close
 * the handles first, or leave with _exit().
 *
 * Strings are UTF-8. Strings and arrays in descriptions belong to the handle and live as long as it does. */
#ifndef GRADLOOM_H
#define GRADLOOM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when something is added (minor) or when what is here changes (major). */
#define GRADLOOM_API_MAJOR 1
#define GRADLOOM_API_MINOR 0

enum {
  GRADLOOM_OK = 0,
  GRADLOOM_CHECK_FAILED = 1, /* a replayed recipe did not keep what it promises */
  GRADLOOM_USAGE = 2,        /* wrong words, names or arguments */
  GRADLOOM_BAD_INPUT = 3,    /* a file, model or batch that cannot be used */
  GRADLOOM_LIMIT = 4,        /* a documented limit, or out of memory */
  GRADLOOM_IO = 5,           /* reading or writing failed */
  GRADLOOM_DEVICE = 6,       /* a device failed or lacks a kernel */
  GRADLOOM_NUMERIC = 7,      /* the loss is NaN or infinite */
  GRADLOOM_BUG = 70,         /* our bug */
  GRADLOOM_INTERRUPTED = 130 /* the progress callback ended it */
};

/* Element types, with the numbers of ONNX's TensorProto.DataType. Tensors are row-major and contiguous. */
enum {
  GRADLOOM_F32 = 1,
  GRADLOOM_U8 = 2,
  GRADLOOM_I8 = 3,
  GRADLOOM_U16 = 4,
  GRADLOOM_I16 = 5,
  GRADLOOM_I32 = 6,
  GRADLOOM_I64 = 7,
  GRADLOOM_BOOL = 9, /* a byte, 0 or 1 */
  GRADLOOM_F16 = 10,
  GRADLOOM_F64 = 11,
  GRADLOOM_U32 = 12,
  GRADLOOM_U64 = 13,
  GRADLOOM_BF16 = 16
};

/* "0.1.0" */
const char* gradloom_version(void);
/* GRADLOOM_API_MAJOR * 1000 + GRADLOOM_API_MINOR of the library. */
int gradloom_api(void);
/* Of the last call of this thread that failed; "" before. Valid until this thread's next call that fails. */
const char* gradloom_last_error(void);
/* Threads that compute, of the whole process: 1 to 1024; 0: OMP_NUM_THREADS, else all usable processors. --threads of a
 * job or module does the same when it is opened. */
int gradloom_set_threads(int threads);
int gradloom_threads(void); /* how many there are */

/* A tensor of a job or module as it is described. */
typedef struct gradloom_value {
  const char* name;
  int32_t dtype;
  int32_t rank;
  const int64_t* shape; /* `rank` numbers, all of them known */
  int64_t bytes;        /* of a contiguous tensor */
  /* 1: backward takes (outputs) or gives (inputs, parameters) its gradient, of the same type */
  int32_t gradient;
  int32_t used; /* inputs, parameters, statistics: 0: no kernel reads it, its pointer may be null */
} gradloom_value;

/* What values are listed by, each with numbers from 0. */
enum {
  GRADLOOM_INPUT = 0,     /* of the model, in its order */
  GRADLOOM_OUTPUT = 1,    /* of the model, in its order; of a job the loss */
  GRADLOOM_PARAMETER = 2, /* trained and frozen ones, in the order of the file */
  GRADLOOM_STATISTIC = 3, /* running statistics (BatchNormalization) */
  GRADLOOM_STATE = 4      /* of jobs: what optimizer and loss scaling keep, "<parameter>/m" */
};

/* ---- modules ---------------------------------------------------------------------------------------------------------- */

typedef struct gradloom_module gradloom_module;

/* A model made ready to run for one binding of its dims, on the CPU. `path`: an ONNX file, may be null with --recipe (whose
 * model it is then; of a recipe everything counts that is about the model and its plan: dims, freeze, train, precision,
 * passes, rules, planner, threads). `words`: such settings as flags ("--dim", "batch=8"), and
 *   --mode train|eval     train (the default): Dropout drops, BatchNormalization uses and updates statistics where the file
 *                         says so; eval: Dropout is off, BatchNormalization takes the running statistics
 *   --gradients off       forward alone; else backward is part of the plan where something is trained
 *   --input-grad GLOB     inputs whose gradients backward gives, by name; repeatable; by default none
 *   --output-grad GLOB    outputs whose gradients backward takes, by name; repeatable; by default all
 *                         What has none, because nothing that is trained or named here leads there, has `gradient` 0
 *   --output NAME         outputs to compute, in this order; repeatable; by default all of the model
 * Loss, optimizer, data and what else is about steps has no effect. Parameters are read from the caller's memory in each
 * call; those in the file tell types and names, and are not kept. Parameters are trained as `gradloom inspect` tells,
 * unless --freeze or --train overrule it. Precision f64 makes every floating value f64; bf16 and f16 are mixed
 * (parameters, inputs and outputs stay what they are in the file). f16 scales no loss: that is the caller's.
 * Errors: those of `gradloom train` for the same file and flags; GRADLOOM_DEVICE: a device that is not the CPU;
 * GRADLOOM_BAD_INPUT: tensors whose sizes only the contents of inputs tell. */
int gradloom_module_open(const char* path, int word_count, const char* const* words,
                         gradloom_module** module);
/* The same of a file's bytes, which may be freed afterwards. Weights in external files cannot be found then. */
int gradloom_module_open_bytes(const void* bytes, size_t size, int word_count, const char* const* words,
                               gradloom_module** module);
void gradloom_module_close(gradloom_module* module); /* null: nothing happens */

/* kind: GRADLOOM_INPUT, OUTPUT, PARAMETER, STATISTIC. */
int gradloom_module_count(const gradloom_module* module, int kind, int* count);
int gradloom_module_value(const gradloom_module* module, int kind, int index, gradloom_value* value);

/* Notes that were made while the model was read and compiled, one a line. */
int gradloom_module_notes(const gradloom_module* module, const char** notes);

enum {
  GRADLOOM_NO_GRAD = 1 /* forward alone: no backward follows, and the arena may go at once */
};

/* The arena: memory of the caller in which a forward works, keeps what its backward needs, and its backward works. Each
 * forward whose backward is still to come needs one of its own, untouched in between. With GRADLOOM_NO_GRAD the plan is
 * another, and smaller; it is compiled when first asked for. `alignment`: of its address. */
int gradloom_module_arena(gradloom_module* module, int flags, int64_t* bytes, int64_t* alignment);

/* Arrays are in the order of the values' numbers; arrays of values that there are none of may be null. Addresses need the
 * alignment of their elements (64 bytes is faster). Memory of results may not overlap anything else of the call. Contents
 * of integer inputs are not looked at: an index outside of its range gives 0 and has no gradient, and no memory outside of the
 * tensors is touched. */
typedef struct gradloom_call {
  size_t size;                   /* sizeof(gradloom_call) */
  int32_t flags;                 /* GRADLOOM_NO_GRAD: forward alone */
  const void* const* inputs;     /* backward reads them again: unchanged since the forward */
  const void* const* parameters; /* the same */
  void* const* statistics;       /* read; in mode train a forward updates them in place */
  void* const* outputs;          /* written by forward; backward does not read them. Null in backward */
  void* arena;
  uint64_t seed; /* Dropout and other random operators: equal seed, step and model give equal numbers. */
  uint64_t step; /* Backward needs those of its forward. */
  const void* const* output_gradients; /* backward: of outputs with `gradient`; others null */
  void* const* input_gradients;        /* backward: written, of inputs with `gradient`; others null */
  /* backward: written (not added), of parameters with `gradient`; others null */
  void* const* parameter_gradients;
} gradloom_call;

/* Returns when the results are there. Errors: GRADLOOM_USAGE: a pointer that is missing or misaligned, naming its value. */
int gradloom_module_forward(gradloom_module* module, const gradloom_call* call);
/* After a forward in the same arena, once: what it kept is used up. GRADLOOM_USAGE: the arena holds no forward that waits
 * for its backward. */
int gradloom_module_backward(gradloom_module* module, const gradloom_call* call);

/* ---- jobs ------------------------------------------------------------------------------------------------------------- */

typedef struct gradloom_job gradloom_job;

/* What a job has to say. They are called on the thread that calls the job's function, and must not call that job. */
enum { GRADLOOM_LOG_TEXT = 0, GRADLOOM_LOG_NOTE = 1, GRADLOOM_LOG_ERROR = 2, GRADLOOM_LOG_JSON = 3 };
typedef struct gradloom_callbacks {
  size_t size; /* sizeof(gradloom_callbacks) */
  void* user;  /* given to each */
  /* A line without its end; level JSON: an object as `gradloom train --json` prints it, only when `json` is 1. */
  void (*log)(void* user, int level, const char* line);
  int32_t json; /* what would be text is JSON */
  /* After each step of gradloom_job_run; other than 0 ends the run after this step: GRADLOOM_INTERRUPTED. */
  int (*progress)(void* user, int64_t step, int64_t steps, double loss);
} gradloom_callbacks;

/* `words`: those of `gradloom train`, [MODEL] and flags: --recipe, --session, --checkpoint, --resume, --save-params, ..; also
 * --data caller: batches come with each step (gradloom_job_step_on). Nothing is printed: `callbacks` (may be null) hear
 * it. The session, where there is one, has the run from here on. */
int gradloom_job_open(int word_count, const char* const* words, const gradloom_callbacks* callbacks,
                      gradloom_job** job);
/* Ends the run as `gradloom train` ends: last checkpoint, files of parameters, the session's end. The handle is freed in
 * any case; the code tells what could not be kept. Null: nothing happens. */
int gradloom_job_close(gradloom_job* job);

/* The next step on the recipe's data; `loss` may be null. GRADLOOM_USAGE: all steps (--steps) are made. A loss that is not
 * finite is GRADLOOM_NUMERIC, and the last step of the job. */
int gradloom_job_step(gradloom_job* job, double* loss);
/* All steps that are left, with evaluation and early stop. */
int gradloom_job_run(gradloom_job* job);
/* The next step on batches of the caller: for each of the K batches of a step (--accumulate K) a pointer for each input,
 * one batch behind the other; `count`: of pointers. They are read during the call. */
int gradloom_job_step_on(gradloom_job* job, int count, const void* const* inputs, double* loss);
int gradloom_job_steps(const gradloom_job* job, int64_t* made, int64_t* all);
/* Of the steps that follow, instead of what optimizer and schedule say; --group's rates keep their ratio to it. */
int gradloom_job_set_learning_rate(gradloom_job* job, double rate);

int gradloom_job_count(const gradloom_job* job, int kind, int* count);
int gradloom_job_value(const gradloom_job* job, int kind, int index, gradloom_value* value);
/* Parameters, statistics and states by name, as they are after the last step. `bytes` must be the value's. */
int gradloom_job_read(const gradloom_job* job, const char* name, void* to, size_t bytes);
int gradloom_job_write(gradloom_job* job, const char* name, const void* from, size_t bytes);
/* Writes a checkpoint now; needs --checkpoint FOLDER. `--resume FOLDER` goes on from it. */
int gradloom_job_checkpoint(gradloom_job* job);

#ifdef __cplusplus
}
#endif

#endif
