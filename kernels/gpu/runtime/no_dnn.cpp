// For builds without the headers of a library of convolutions: our own kernels serve.
#include "kernels/gpu/runtime/dnn_library.h"

namespace gradloom::kernels::gpu {

class DnnLibrary {};
void CloseDnnLibrary::operator()(DnnLibrary* library) const { delete library; }
DnnLibraryPtr open_dnn_library() { return nullptr; }
bool run_convolution(DnnLibrary&, const ConvolutionArgs&, void*, bool) { return false; }
std::string dnn_library_version() { return ""; }

}  // namespace gradloom::kernels::gpu
