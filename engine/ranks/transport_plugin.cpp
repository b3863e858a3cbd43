#include "engine/ranks/transport_plugin.h"

#include <dlfcn.h>

#include "engine/base/plugins.h"
#include "engine/base/text.h"

namespace gradloom {

Result<const GradloomTransport*> load_transport(const std::string& kind) {
  const bool mpi = kind == "mpi";
  const Result<std::string> path = find_plugin(kind);
  if (!path)
    return Error{Errc::device, path.error().message + ": these ranks need " +
                                   (mpi ? "Open MPI (packages libopenmpi-dev and openmpi-bin"
                                        : "Asio (package libasio-dev") +
                                   " when Gradloom is built)"};
  // Open MPI's own plugins look for its names.
  void* const library = dlopen(path->c_str(), RTLD_NOW | (mpi ? RTLD_GLOBAL : RTLD_LOCAL));
  if (library == nullptr) {
    const char* const why = dlerror();
    return Error{Errc::device, "cannot load the plugin: " + escaped(why != nullptr ? why : *path)};
  }
  const auto entry = reinterpret_cast<GradloomTransportFn>(dlsym(library, GRADLOOM_TRANSPORT_ENTRY));
  const GradloomTransport* const transport = entry == nullptr ? nullptr : entry();
  if (transport == nullptr || transport->version != GRADLOOM_TRANSPORT_VERSION)
    return Error{Errc::device, escaped(*path) + " is of another version of Gradloom"};
  return transport;
}

}  // namespace gradloom
