// Words of errors, those that the strict driver gives.
#include <cuda_runtime_api.h>

namespace {

struct ErrorWords {
  cudaError_t error;
  const char *name, *text;
};
#define WORDS(name, text) \
  { name, #name, text }
constexpr ErrorWords kErrorWords[] = {
    WORDS(cudaSuccess, "no error"),
    WORDS(cudaErrorInvalidValue, "invalid argument"),
    WORDS(cudaErrorMemoryAllocation, "out of memory"),
    WORDS(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    WORDS(cudaErrorInvalidDevice, "invalid device ordinal"),
    WORDS(cudaErrorInvalidKernelImage, "device kernel image is invalid"),
    WORDS(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    WORDS(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    WORDS(cudaErrorSymbolNotFound, "named symbol not found"),
    WORDS(cudaErrorNotReady, "device not ready"),
    WORDS(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    WORDS(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    WORDS(cudaErrorLaunchFailure, "unspecified launch failure"),
    WORDS(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    WORDS(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    WORDS(cudaErrorStreamCaptureUnmatched, "capture was not initiated in this stream"),
    WORDS(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    WORDS(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    WORDS(cudaErrorStreamCaptureImplicit,
          "operation would make the legacy stream depend on a capturing stream"),
    WORDS(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
    WORDS(cudaErrorStreamCaptureWrongThread,
          "attempt to terminate a thread-local capture sequence from another thread"),
};
#undef WORDS

ErrorWords words_of(cudaError_t error) {
  for (const ErrorWords& words : kErrorWords)
    if (words.error == error) return words;
  return {error, "unrecognized error code", "unrecognized error code"};
}

}  // namespace

extern "C" const char* cudaGetErrorName(cudaError_t error) { return words_of(error).name; }
extern "C" const char* cudaGetErrorString(cudaError_t error) { return words_of(error).text; }
