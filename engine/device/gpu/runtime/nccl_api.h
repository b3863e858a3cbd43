// What we use of NCCL 2, declared after nccl.h, which no toolkit has to have; RCCL has the same functions. Where it is installed,
// tests/engine/device/gpu/runtime/declarations_test.cpp compares it with this.
#pragma once

#include <cstddef>

namespace gradloom::kernels::gpu {

enum ncclResult_t : int {};
enum ncclDataType_t : int {};
enum ncclRedOp_t : int {};

#define VALUE(type, name, number) constexpr type name{number};
#include "engine/device/gpu/runtime/nccl_values.def"

using ncclComm_t = struct NcclComm*;
struct ncclUniqueId {
  char internal[128];
};

using NcclGetVersion = ncclResult_t(int* version);
using NcclGetUniqueId = ncclResult_t(ncclUniqueId* id);
using NcclCommInitRank = ncclResult_t(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank);
using NcclCommAbort = ncclResult_t(ncclComm_t comm);
using NcclCommGetAsyncError = ncclResult_t(ncclComm_t comm, ncclResult_t* error);
using NcclAllReduce = ncclResult_t(const void* from, void* to, std::size_t count, ncclDataType_t type,
                                   ncclRedOp_t op, ncclComm_t comm, void* stream);
using NcclReduce = ncclResult_t(const void* from, void* to, std::size_t count, ncclDataType_t type,
                                ncclRedOp_t op, int root, ncclComm_t comm, void* stream);
using NcclBroadcast = ncclResult_t(const void* from, void* to, std::size_t count, ncclDataType_t type,
                                   int root, ncclComm_t comm, void* stream);
using NcclReduceScatter = ncclResult_t(const void* from, void* to, std::size_t count_of_each,
                                       ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm, void* stream);
using NcclAllGather = ncclResult_t(const void* from, void* to, std::size_t count_of_each, ncclDataType_t type,
                                   ncclComm_t comm, void* stream);
using NcclGroup = ncclResult_t();  // start and end
using NcclGetErrorString = const char*(ncclResult_t result);
using NcclGetLastError = const char*(ncclComm_t comm);

}  // namespace gradloom::kernels::gpu
