// What the kernels need of omp.h, for clang: GCC's own header is not for it, and clang's is in a package that not everybody
// has. The functions are libgomp's, which oneDNN brings.
#pragma once

extern "C" {
int omp_get_max_threads(void);
void omp_set_num_threads(int threads);
}
