// For plugins that know no such library (HIP): our own kernels serve.
#include "engine/device/gpu/runtime/dnn_library.h"

namespace gradloom::kernels::gpu {

class DnnLibrary {};
void CloseDnnLibrary::operator()(DnnLibrary* library) const { delete library; }
DnnLibraryPtr open_dnn_library(int, Answer* why) {
  *why = refused("this plugin knows no library for it");
  return nullptr;
}
Answer run_dnn(DnnLibrary&, const std::optional<DnnCall>&, void*, bool) { return {}; }
std::string dnn_library_version() { return ""; }

}  // namespace gradloom::kernels::gpu
