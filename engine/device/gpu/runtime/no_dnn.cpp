// For builds without the headers of such a library: our own kernels serve.
#include "engine/device/gpu/runtime/dnn_library.h"

namespace gradloom::kernels::gpu {

class DnnLibrary {};
void CloseDnnLibrary::operator()(DnnLibrary* library) const { delete library; }
DnnLibraryPtr open_dnn_library(int) { return nullptr; }
bool run_dnn(DnnLibrary&, const DnnCalls&, void*, bool) { return false; }
std::string dnn_library_version() { return ""; }

}  // namespace gradloom::kernels::gpu
