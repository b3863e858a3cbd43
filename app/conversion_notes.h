// What a conversion could not say, as commands tell it.
#pragma once

#include <string>
#include <vector>

#include "app/output.h"
#include "sessions/conversion.h"

namespace gradloom {

Json notes_json(const std::vector<ConversionNote>& notes);  // an object with where, value and why each
// One line each: on stdout, or as notes where stdout is the converted file.
void tell_notes(const Output& out, const std::vector<ConversionNote>& notes, bool beside_file);

}  // namespace gradloom
