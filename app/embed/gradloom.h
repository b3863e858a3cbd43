/* gradloom.h: Gradloom inside another program. Plain C (C89 and <stdint.h>); libgradloom.so exports what is declared here
 * and nothing else.
 *
 * Jobs train: a recipe, or a model with options, as the command `gradloom train` runs it. Modules compute: forward and
 * backward of a model as two calls, on the caller's memory, for a training loop that is somebody else's (PyTorch's).
 * Recorders write what such a loop does into a session.
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
 * Signals. No handler is set. While kernels run, handlers of the program wait on the thread that called, 10 ms or as long as
 * one kernel takes; those of its own faults (SIGSEGV, ..) and host functions do not.
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
#define GRADLOOM_API_MINOR 8

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
/* Loads a library with operators of your own (gradloom_op.h) for the rest of the process, as --ops LIB.so of a job or
 * module does. Errors: GRADLOOM_IO: there is no such file; GRADLOOM_BAD_INPUT: it is no such library. */
int gradloom_load_ops(const char* path);

/* Functions of the caller inside a plan: nodes HostCall of domain "gradloom" in a model (attributes: engine/ops/custom/
 * host_call.h), which name one by its number. It is called from the thread that runs the step, with `call` of the node:
 * first forward, with the node's inputs and results, then backward, with the gradients of the results and those of the
 * inputs. Results are to be written whole; `data` is null where a gradient is zero or not wanted. Inputs are the engine's
 * memory for that call alone. Returns 0; else the step ends with GRADLOOM_DEVICE, and the training with it: what a step
 * had updated until then stays so. */
typedef struct gradloom_host_tensor {
  void* data;
  int32_t dtype;
  int32_t rank;
  const int64_t* dims;
} gradloom_host_tensor;
typedef int (*gradloom_host_function)(void* user, int64_t call, int backward, int input_count,
                                      const gradloom_host_tensor* inputs, int output_count,
                                      const gradloom_host_tensor* outputs);
/* `number`: from 1, for attribute `function`. */
int gradloom_host_function_add(gradloom_host_function function, void* user, int64_t* number);
/* Nodes that still call it end their step with GRADLOOM_DEVICE. */
int gradloom_host_function_remove(int64_t number);

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

/* What values are listed by, each with numbers from 0. Where ranks share parameters out (pass zero), states are this rank's: of a
 * parameter that is cut a range of its elements, as one dim. */
enum {
  GRADLOOM_INPUT = 0,     /* of the model, in its order */
  GRADLOOM_OUTPUT = 1,    /* of the model, in its order; of a job the loss */
  GRADLOOM_PARAMETER = 2, /* trained and frozen ones, in the order of the file */
  GRADLOOM_STATISTIC = 3, /* running statistics (BatchNormalization) */
  GRADLOOM_STATE = 4      /* of jobs: what optimizer and loss scaling keep, "<parameter>/m" */
};

/* ---- modules ---------------------------------------------------------------------------------------------------------- */

typedef struct gradloom_module gradloom_module;

/* A model made ready to run for one binding of its dims, on the CPU or, with --device cuda:0, on a GPU, whose memory all addresses of a
 * call are then (arrays of addresses are the host's). All modules of one GPU share a context of the process's primary one, and a
 * stream of their own. Opening, closing, gradloom_module_arena and the first call with GRADLOOM_NO_GRAD make the GPU the thread's device;
 * other calls leave that as it was. `path`: an ONNX file, may be null with --recipe (whose
 * model it is then; of a recipe everything counts that is about the model and its plan: dims, freeze, train, precision,
 * passes, rules, planner, threads, recompute and memory budget, which is for parameters, their gradients, inputs, outputs and
 * the arena of one call). `words`: such settings as flags ("--dim", "batch=8"), and
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
 * Errors: those of `gradloom train` for the same file and flags;
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

/* Of every tensor that the model's nodes make, in their order, the rank and the dims, one behind the other: by them a caller who
 * makes files for other shapes from files that it has sees whether all sizes follow as it thought. They live as long
 * as the handle. */
int gradloom_module_extents(const gradloom_module* module, const int64_t** extents, size_t* count);

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
  /* With --device cuda:N, hip:N: the caller's cudaStream_t or hipStream_t; null: the default stream. The call's work begins when that
   * stream has done what it has, and what the stream gets afterwards waits for it. Since minor version 5. The caller may record the
   * stream (cudaStreamBeginCapture) once the module has made the same calls without: their memory is read and written at each replay then, and
   * each replay of a forward draws other numbers, as calls with step + 1, step + 2, .. of the first one recorded would. Since minor
   * version 7. */
  void* stream;
} gradloom_call;

/* Returns when the results are there, on a GPU when the work is queued. Errors: GRADLOOM_USAGE: a pointer that is missing or
 * misaligned, naming its value. */
int gradloom_module_forward(gradloom_module* module, const gradloom_call* call);
/* After a forward in the same arena, once: what it kept is used up. GRADLOOM_USAGE: the arena holds no forward that waits
 * for its backward. */
int gradloom_module_backward(gradloom_module* module, const gradloom_call* call);

/* ---- recorders -------------------------------------------------------------------------------------------------------- */

typedef struct gradloom_recorder gradloom_recorder;

/* A training loop of the caller as a run of a session, which `gradloom show`, `trace` and `open` read: its steps, what the
 * thread that opened the recorder did in each (spans), and the kernels of the modules that it watches (of those on a GPU the calls
 * alone, as long as the host took). Calls of other threads are not recorded. Times are nanoseconds of CLOCK_MONOTONIC.
 * After an error of the session (GRADLOOM_IO) nothing more is recorded, and every call but close returns it; modules go on.
 *
 * `session`: a file, which is made where there is none; a session that is there gets one more run. `words`:
 *   --profile step|sampled|all   steps that are timed kernel by kernel: none, every third (the default), all
 *   --name TEXT                  of the run
 *   --steps N                    that are planned
 *   --command TEXT               what the program was started with
 * The first step begins now. */
int gradloom_recorder_open(const char* session, int word_count, const char* const* words,
                           gradloom_recorder** recorder);
/* Ends the run. `failure`: one line that says why the loop failed; null: it did not. A step that has not ended is not
 * kept. The handle is freed in any case; the code tells what could not be kept. Null: nothing happens. */
int gradloom_recorder_close(gradloom_recorder* recorder, const char* failure);

/* From here on forwards and backwards of `module` are recorded, until one of the two is closed or another recorder watches
 * it. `name` stands before the names of its nodes; one that is taken gets a number ("net#2"). */
int gradloom_recorder_watch(gradloom_recorder* recorder, gradloom_module* module, const char* name);

/* What the thread did between two times of the step that goes on. Spans may come in any order, and lie inside one another by
 * their times; one that reaches out of the span or step in which it began is cut there. `kind`: data, engine, gradloom,
 * compile, outside, module, backward, optimizer, python or record (docs/sessions.md, host_span); calls of watched
 * modules are there by themselves. `name`: of what ran, may be null. */
int gradloom_recorder_span(gradloom_recorder* recorder, const char* kind, const char* name, int64_t start_ns,
                           int64_t end_ns);
/* The step that goes on begins here: what was before belongs to none. Needed where a step does not begin when the one
 * before ended. */
int gradloom_recorder_begin_step(gradloom_recorder* recorder, int64_t start_ns);
/* The step ends, and the next one begins. `loss`, `lr`: NaN where the caller has none. GRADLOOM_LIMIT: a step with more
 * than 100000 spans or 1000000 kernels. */
int gradloom_recorder_end_step(gradloom_recorder* recorder, int64_t end_ns, double loss, double lr);
/* Something that is worth knowing of the run ("optimizer", "AdamW"), for the table environment, as loop.NAME. */
int gradloom_recorder_tell(gradloom_recorder* recorder, const char* name, const char* value);

/* ---- ranks ------------------------------------------------------------------------------------------------------------ */

/* Makes the process one rank of several, as the environment says that a launcher has set (torchrun, mpirun, srun, Azure ML, or by
 * hand: engine/ranks/place.h), and meets the others. Without a launcher it is the only rank. Nothing else of this library
 * looks for ranks. Jobs that are opened afterwards are of all: every rank opens the same ones, and makes the same steps, each
 * with batches of its own, whose gradients are averaged; losses are means over the ranks; rank 0 alone writes sessions and files. Parameters are those of
 * the rank's own model: the ranks must begin with the same (gradloom_ranks_share). A second call tells the same again. While a thread
 * meets the others no other one waits for it: what needs the ranks answers GRADLOOM_USAGE. `limit_s`:
 * seconds for the others to come, and that one may be silent later. `stop`: may be null; once another thread has made it other
 * than 0 the meeting ends: GRADLOOM_INTERRUPTED. `rank`, `world` may be null. Errors: GRADLOOM_DEVICE: they do not come; GRADLOOM_USAGE: the environment is no place. */
int gradloom_ranks_join(double limit_s, const int32_t* stop, int* rank, int* world);
/* What rank 0 has there goes to all others. Every rank calls it, with as many bytes. The only rank keeps what it has. */
int gradloom_ranks_share(void* data, int64_t bytes);
/* Before the process ends, once its jobs are closed: tells the others how its steps ended, and waits until they do, too. A step
 * that failed has told them already. Returns the code of a rank whose training failed. */
int gradloom_ranks_leave(void);

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
/* Memory of the caller for a parameter or running statistic of a job. */
typedef struct gradloom_memory {
  const char* name;
  void* data;   /* aligned to its elements, 64 bytes is faster */
  size_t bytes; /* those of the value (gradloom_job_value) */
  int32_t used; /* written: 1: the job works there; 0: its plan has no such value */
} gradloom_memory;
/* gradloom_job_open on the CPU, with parameters and running statistics in memory of the caller: every step reads them where they
 * lie and updates them there; nothing is copied but what --checkpoint and --save-params keep to go back to, and the job has none of its own
 * for them. They begin with what stands there (with several ranks, the same on all),
 * whatever the file of the model says; with --resume or --load-params its parameters are written there. What is not given has
 * memory of the job. The memory stays where it is until gradloom_job_close has returned, which still reads it for files, and belongs to the
 * job during each call on it. In between the caller may read it and, changing it, says so by gradloom_job_write with the same address, by
 * which 16-bit copies of weights (--precision bf16, f16) follow; in f32 and f64 nothing needs to be said. After a step that failed it
 * holds what the step had made of it; with --checkpoint or --save-params gradloom_job_close then writes the last finite parameters there. GRADLOOM_USAGE: another size, an address that is misaligned or null, a name that comes
 * twice, memory that overlaps, another device. Since minor version 8. */
int gradloom_job_open_on(int word_count, const char* const* words, const gradloom_callbacks* callbacks,
                         int memory_count, gradloom_memory* memories, gradloom_job** job);
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
/* Makes the job ready for batches of other sizes, such as the last of an epoch or texts of another length. `words`: "--dim",
 * "batch=7" for dims of its model, or a MODEL: another file of the same parameters (--dim then binds that one's dims);
 * "--precision": they are computed in another one, and what the job keeps stays as it is.
 * `sizes`: a number from 1 for gradloom_job_step_sized. Its plan works in the job's memory, and takes more only where its
 * arena is larger. Kernels of such steps are not timed. GRADLOOM_USAGE: other words, parameters or states; errors of
 * gradloom_job_open about model and plan. */
int gradloom_job_sizes(gradloom_job* job, int word_count, const char* const* words, int* sizes);
/* gradloom_module_extents of the job's model for these sizes; 0: its own. They live until the next call on the job. */
int gradloom_job_extents(gradloom_job* job, int sizes, const int64_t** extents, size_t* count);
/* Forgets them. GRADLOOM_USAGE: there are no such. */
int gradloom_job_forget_sizes(gradloom_job* job, int sizes);
/* gradloom_job_step_on for batches of these sizes; 0: the job's own. */
int gradloom_job_step_sized(gradloom_job* job, int sizes, int count, const void* const* inputs, double* loss);
int gradloom_job_steps(const gradloom_job* job, int64_t* made, int64_t* all);
/* Of the steps that follow, instead of what optimizer and schedule say; --group's rates keep their ratio to it. */
int gradloom_job_set_learning_rate(gradloom_job* job, double rate);
/* The same of one option of the parameters that `--group GLOB{number=N}` numbers: "lr" or, on the CPU, "momentum", "beta1", "beta2",
 * "weight_decay" or "eps" where the optimizer has it. GRADLOOM_USAGE: others, values out of range, a group that the recipe does not number, momentum
 * for an optimizer that began without, beta1 of nadam. Since minor version 6. */
int gradloom_job_set_option(gradloom_job* job, int group, const char* option, double value);

/* Notes that were made while the model was read and compiled, one a line. Since minor version 6. */
int gradloom_job_notes(const gradloom_job* job, const char** notes);

int gradloom_job_count(const gradloom_job* job, int kind, int* count);
int gradloom_job_value(const gradloom_job* job, int kind, int index, gradloom_value* value);
/* Parameters, statistics and states by name, as they are after the last step. `bytes` must be the value's. With pass zero a rank keeps
   the states of its own parameters alone: reading others is an error, writing them nothing. */
int gradloom_job_read(const gradloom_job* job, const char* name, void* to, size_t bytes);
int gradloom_job_write(gradloom_job* job, const char* name, const void* from, size_t bytes);
/* Writes a checkpoint now, in the place of one of this step; needs --checkpoint FOLDER. `--resume FOLDER` goes on from it. Where ranks keep states apart (pass zero)
 * all of them call it, after the same step. */
int gradloom_job_checkpoint(gradloom_job* job);

/* ---- commands --------------------------------------------------------------------------------------------------------- */

/* Runs a command of the command line: "plan", "model.onnx", "--dim", "batch=8". All but open, train and help. What it would print
 * goes line by line to callbacks->log, which may be null like `callbacks`; with callbacks->json, or --json among the words, as
 * the JSON that the command prints. Returns the command's exit code: GRADLOOM_CHECK_FAILED is an answer as good as
 * GRADLOOM_OK. `stop`: may be null; once another thread has made it other than 0 the command ends:
 * GRADLOOM_INTERRUPTED. */
int gradloom_command(int word_count, const char* const* words, const gradloom_callbacks* callbacks,
                     const int32_t* stop);

#ifdef __cplusplus
}
#endif

#endif
