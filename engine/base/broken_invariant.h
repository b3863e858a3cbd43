// What CHECK does where a program must not end with us: libgradloom.
#pragma once

#include <stdexcept>

namespace gradloom {

class BrokenInvariant : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

// From now on a CHECK that fails throws BrokenInvariant instead of ending the process. What it stood in is not usable
// afterwards; where nothing may be thrown the process ends as before.
void throw_broken_invariants();

}  // namespace gradloom
