// The plugins that carry bytes between ranks.
#pragma once

#include <string>

#include "engine/base/result.h"
#include "engine/ranks/transport.h"

namespace gradloom {

// `kind`: "mpi" or "tcp". Errc::device: it is not there, or of another version.
Result<const GradloomTransport*> load_transport(const std::string& kind);

}  // namespace gradloom
