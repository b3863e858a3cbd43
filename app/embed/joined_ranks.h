// The ranks of which a program that has the library has made itself one.
#pragma once

#include <optional>

#include "engine/base/result.h"
#include "engine/ranks/place.h"

namespace gradloom::embed {

std::optional<RankPlace> joined_place();  // nothing: the process is the only rank
Status has_not_left();  // Errc::usage: it has, and can train no more; or it is meeting the others
// An error with which a training ended: this rank leaves the others with it, while what it exchanged is still there (it may take 5 s
// until they have heard); returns it.
Error as_end_of_rank(Error error);

}  // namespace gradloom::embed
