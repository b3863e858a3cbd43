// What we use of cuDNN, declared after its headers (cudnn_graph.h), which no toolkit has. Where they are installed,
// tests/engine/device/gpu/runtime/declarations_test.cpp compares them with this.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradloom::kernels::gpu {

enum cudnnBackendAttributeName_t : int {};
enum cudnnBackendDescriptorType_t : int {};
enum cudnnBackendNormMode_t : int {};
enum cudnnBackendBehaviorNote_t : int {};
enum cudnnConvolutionMode_t : int {};
enum cudnnDataType_t : int {};
enum cudnnBackendHeurMode_t : int {};
enum cudnnPaddingMode_t : int {};
enum cudnnBackendNormFwdPhase_t : int {};
enum cudnnBackendNumericalNote_t : int {};
enum cudnnPointwiseMode_t : int {};
enum cudnnNanPropagation_t : int {};
enum cudnnReduceTensorOp_t : int {};
enum cudnnResampleMode_t : int {};
enum cudnnStatus_t : int {};
enum cudnnBackendAttributeType_t : int {};

#define VALUE(type, name, number) constexpr type name{number};
#include "engine/device/gpu/runtime/cudnn_values.def"

using cudnnHandle_t = struct CudnnHandle*;
using cudnnBackendDescriptor_t = void*;
struct cudnnFraction_t {
  std::int64_t numerator, denominator;
};

using CudnnGetVersion = std::size_t();
using CudnnCreate = cudnnStatus_t(cudnnHandle_t* handle);
using CudnnDestroy = cudnnStatus_t(cudnnHandle_t handle);
using CudnnSetStream = cudnnStatus_t(cudnnHandle_t handle, void* stream);
using CudnnCreateDescriptor = cudnnStatus_t(cudnnBackendDescriptorType_t type,
                                            cudnnBackendDescriptor_t* descriptor);
using CudnnDestroyDescriptor = cudnnStatus_t(cudnnBackendDescriptor_t descriptor);  // and finalize
using CudnnSetAttribute = cudnnStatus_t(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                        cudnnBackendAttributeType_t type, std::int64_t count,
                                        const void* values);
using CudnnGetAttribute = cudnnStatus_t(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                        cudnnBackendAttributeType_t type, std::int64_t capacity,
                                        std::int64_t* count, void* values);
using CudnnExecute = cudnnStatus_t(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                   cudnnBackendDescriptor_t pack);
using CudnnGetErrorString = const char*(cudnnStatus_t status);
using CudnnGetLastErrorString = void(char* text, std::size_t capacity);

}  // namespace gradloom::kernels::gpu
