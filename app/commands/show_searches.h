// runs --searches: what tune found for the jobs of a session, and what each of their passes is worth.
#pragma once

#include "app/output.h"
#include "sessions/store.h"

namespace gradloom {

// A line for each search, the newest first: its configurations as `tune --json` tells them, and the worth of the passes where it
// was measured. Errors: those of the store.
Status show_searches(const Output& out, Store& store);

}  // namespace gradloom
