// libcuda for tests of cuDNN's plans, where there is no driver: takes what cuDNN has compiled, knows no
// device. cuDNN's engines that are compiled when they are planned load their code at once; without a driver
// it has no plan of theirs.
#define GRADLOOM_TAKES(name) \
  extern "C" int name() { return 0; }
#define GRADLOOM_HAS_NO_DEVICE(name) \
  extern "C" int name() { return 100; }

namespace {
char code;
}

extern "C" int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
extern "C" int cuGetErrorName(int, const char** text) {
  *text = "CUDA_ERROR_NO_DEVICE";
  return 0;
}
extern "C" int cuGetErrorString(int, const char** text) { return cuGetErrorName(0, text); }
extern "C" int cuLibraryLoadData(void** library, ...) {
  *library = &code;
  return 0;
}
extern "C" int cuLibraryGetKernel(void** kernel, ...) {
  *kernel = &code;
  return 0;
}
extern "C" int cuKernelGetAttribute(int* value, ...) {
  *value = 0;
  return 0;
}

GRADLOOM_TAKES(cuKernelSetAttribute)
GRADLOOM_TAKES(cuLibraryUnload)
GRADLOOM_TAKES(cuLaunchKernel)
GRADLOOM_TAKES(cuLaunchKernelEx)
GRADLOOM_TAKES(cuLaunchCooperativeKernel)
GRADLOOM_TAKES(cuTensorMapEncodeTiled)
GRADLOOM_TAKES(cuTensorMapEncodeIm2col)
GRADLOOM_HAS_NO_DEVICE(cuInit)
GRADLOOM_HAS_NO_DEVICE(cuDeviceGet)
GRADLOOM_HAS_NO_DEVICE(cuDeviceGetCount)
GRADLOOM_HAS_NO_DEVICE(cuDeviceGetAttribute)
GRADLOOM_HAS_NO_DEVICE(cuCtxGetCurrent)
GRADLOOM_HAS_NO_DEVICE(cuCtxPushCurrent)
GRADLOOM_HAS_NO_DEVICE(cuCtxPopCurrent)
GRADLOOM_HAS_NO_DEVICE(cuCtxGetLimit)
GRADLOOM_HAS_NO_DEVICE(cuStreamGetCtx)
GRADLOOM_HAS_NO_DEVICE(cuLibraryLoadFromFile)
GRADLOOM_HAS_NO_DEVICE(cuLinkCreate)
GRADLOOM_HAS_NO_DEVICE(cuLinkAddData)
GRADLOOM_HAS_NO_DEVICE(cuLinkComplete)
GRADLOOM_HAS_NO_DEVICE(cuLinkDestroy)
GRADLOOM_HAS_NO_DEVICE(cuOccupancyMaxPotentialClusterSize)
