// From where kernels report their accesses to where these are checked.
#pragma once

#include "engine/device/gpu/host/races.h"

namespace gradloom::kernels::gpu::host {

// From here on the accesses of this OS thread's kernel code are those of races' running thread; null: of nobody.
void see_accesses(Races* races);

// Has code that is loaded from now on find what it calls at each access.
void show_hooks();

}  // namespace gradloom::kernels::gpu::host
