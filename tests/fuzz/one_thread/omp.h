// What the kernels need of omp.h. Clang takes -fopenmp=libgomp for "no parallel code", which is what a fuzzer
// wants: it runs one process per core, and a thread that only runs sometimes makes its coverage waver. GCC's
// own header is not for clang, clang's is in a package that not everybody has. The functions are libgomp's,
// which oneDNN brings.
#pragma once

extern "C" {
int omp_get_max_active_levels(void);
int omp_get_max_threads(void);
int omp_get_num_procs(void);
int omp_get_thread_limit(void);
int omp_get_thread_num(void);
void omp_set_dynamic(int dynamic);
void omp_set_max_active_levels(int levels);
void omp_set_num_threads(int threads);
}
