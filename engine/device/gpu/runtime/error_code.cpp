#include "engine/device/gpu/runtime/error_code.h"

namespace gradloom::kernels::gpu {

// Numbers and their meaning: cudaError in driver_types.h; hipError_t has the same. "Lost" are those after
// which the process must end: "this leaves the process in an inconsistent state and any further CUDA work
// will return the same error".
GpuStatus status_of(int error) {
  switch (error) {
    case 0: return GPU_OK;
    case 2: return GPU_OUT_OF_MEMORY;
    case 35:   // driver older than the runtime, or none
    case 803:  // driver and its kernel module differ
    case 804:  // forward compatibility not supported on this device
      return GPU_NO_DRIVER;
    case 46:  // devices busy or prohibited
    case 100:
    case 101: return GPU_NO_DEVICE;
    case 1:  // invalid value, configuration, function
    case 9:
    case 98:
    case 200:  // code that does not fit: invalid image, no image for the device, invalid PTX, PTX too new
    case 209:
    case 218:
    case 222:
    case 701:  // too many resources
    case 720:  // cooperative launch too large
    case 912:  // cluster size
      return GPU_LAUNCH_FAILED;
    case 201:  // no JIT compiler, JIT disabled, not supported
    case 221:
    case 223:
    case 801: return GPU_UNSUPPORTED;
    case 214:  // ECC
    case 220:  // NVLink
    case 226:  // contained ECC
    case 700:  // illegal address
    case 702:  // launch timeout
    case 709:  // context destroyed
    case 710:  // assert
    case 714:  // hardware stack
    case 715:  // illegal instruction
    case 716:  // misaligned address
    case 717:  // invalid address space
    case 718:  // invalid pc
    case 719:  // launch failure
    case 721:  // tensor memory leak
    case 810:  // MPS client terminated
    case 911:  // external device
    case 999:  // unknown: drivers give it for devices that fell off the bus
      return GPU_DEVICE_LOST;
    case 600: return GPU_NOT_READY;
    default: return GPU_FAILED;
  }
}

}  // namespace gradloom::kernels::gpu
