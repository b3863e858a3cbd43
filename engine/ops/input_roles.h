// Roles of inputs (InputRole in engine/ir/op.h) that several rows share.
#pragma once

#include "engine/ir/op.h"

namespace gradloom {

inline constexpr InputRole kSizesFirst[] = {{.input = 0, .use = InputUse::sizes}};
inline constexpr InputRole kSizesSecond[] = {{.input = 1, .use = InputUse::sizes}};
// The shape of the result follows from each element of input 0.
inline constexpr InputRole kExaminedFirst[] = {{.input = 0, .use = InputUse::sizes, .examined = true}};
// Positions in input 0 along attribute axis, checked where they are known.
inline constexpr InputRole kIndicesSecond[] = {
    {.input = 1, .use = InputUse::indices, .of = 0, .axis = 0, .examined = true}};
// Positions in input 0 by one number for each of several dims, checked likewise.
inline constexpr InputRole kPlacesSecond[] = {{.input = 1, .examined = true}};
// Classes along axis 1 of input 0.
inline constexpr InputRole kLabelsSecond[] = {{.input = 1, .use = InputUse::labels, .of = 0, .axis = 1}};

}  // namespace gradloom
