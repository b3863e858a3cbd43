// What the rows that are selected in a table are together, as the line of state tells it.
#pragma once

#include <string>
#include <vector>

#include "sessions/compare.h"
#include "viz/model/kernel_table.h"
#include "viz/model/memory_model.h"

namespace gradloom {

// "3 kernels: 1.20 ms per step, 14.3 %, 20 MiB moved"; without times where none is measured.
std::string kernels_sum_text(const std::vector<const KernelLine*>& lines);
// "3 buffers: 20.0 MiB, 12.5 % of 160 MiB"; `of`: bytes that are live with them.
std::string buffers_sum_text(const std::vector<const MemoryBlock*>& blocks, double of);
// "3 rows: 1.20 ms in A, 0.90 ms in B, -300 us".
std::string compared_sum_text(const std::vector<const ComparedRow*>& rows);

}  // namespace gradloom
