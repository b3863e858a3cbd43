// The ranks of which a program that has the library has made itself one.
#pragma once

#include <optional>

#include "engine/base/result.h"
#include "engine/ranks/place.h"

namespace gradloom::embed {

std::optional<RankPlace> joined_place();  // nothing: the process is the only rank
// An error with which a training ended, as the others hear it when this rank leaves; returns it.
Error as_end_of_rank(Error error);

}  // namespace gradloom::embed
