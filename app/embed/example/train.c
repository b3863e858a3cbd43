/* Trains from a recipe: ./train RECIPE [WORDS of `gradloom train`..], as "--steps", "20", "--session", "s.db". Tells the loss,
 * looks at a parameter, and leaves what the words ask for. Built against an installed libgradloom (CMakeLists.txt here, or
 * cc train.c $(pkg-config --cflags --libs gradloom)). */
#include <gradloom.h>
#include <stdio.h>
#include <stdlib.h>

static int failed(const char* what, int code) {
  fprintf(stderr, "train: %s: %s\n", what, gradloom_last_error());
  return code;
}

static void on_log(void* user, int level, const char* line) {
  (void)user;
  if (level == GRADLOOM_LOG_NOTE || level == GRADLOOM_LOG_ERROR) fprintf(stderr, "%s\n", line);
}

/* The largest absolute number of the first parameter in f32. */
static int look(const gradloom_job* job) {
  gradloom_value value;
  int count = 0, i, code = gradloom_job_count(job, GRADLOOM_PARAMETER, &count);
  float *numbers, most = 0;
  int64_t k;
  for (i = 0; i < count && code == GRADLOOM_OK; ++i) {
    code = gradloom_job_value(job, GRADLOOM_PARAMETER, i, &value);
    if (code != GRADLOOM_OK || value.dtype != GRADLOOM_F32) continue;
    numbers = (float*)malloc((size_t)value.bytes);
    if (numbers == NULL) return GRADLOOM_LIMIT;
    code = gradloom_job_read(job, value.name, numbers, (size_t)value.bytes);
    for (k = 0; code == GRADLOOM_OK && k < value.bytes / 4; ++k) {
      if (numbers[k] > most) most = numbers[k];
      if (-numbers[k] > most) most = -numbers[k];
    }
    free(numbers);
    if (code == GRADLOOM_OK) printf("%s is within %g\n", value.name, (double)most);
    return code;
  }
  return code;
}

int main(int argc, char** argv) {
  gradloom_callbacks callbacks = {sizeof callbacks, NULL, on_log, 0, NULL};
  gradloom_job* job = NULL;
  const char** words;
  int code, closed, i;
  int64_t made = 0, all = 0;
  double loss = 0;

  if (argc < 2) return fprintf(stderr, "usage: train RECIPE [WORDS..]\n"), GRADLOOM_USAGE;
  words = (const char**)malloc(((size_t)argc + 1) * sizeof *words);
  if (words == NULL) return GRADLOOM_LIMIT;
  words[0] = "--recipe";
  for (i = 1; i < argc; ++i) words[i] = argv[i];
  code = gradloom_job_open(argc, words, &callbacks, &job);
  free(words);
  if (code != GRADLOOM_OK) return failed("open", code);

  code = gradloom_job_steps(job, &made, &all);
  while (code == GRADLOOM_OK && made < all) {
    code = gradloom_job_step(job, &loss);
    if (code == GRADLOOM_OK) printf("step %ld of %ld, loss %.9g\n", (long)++made, (long)all, loss);
  }
  if (code == GRADLOOM_OK) code = look(job);
  if (code != GRADLOOM_OK) failed("step", code);
  closed = gradloom_job_close(job);
  if (closed != GRADLOOM_OK && code == GRADLOOM_OK) return failed("close", closed);
  return code;
}
