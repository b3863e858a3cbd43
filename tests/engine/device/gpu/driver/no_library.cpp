// A library that has none of the functions that are looked for in it, in the place of a real one that may be installed here: it would be
// found after it, and takes seconds to load.
namespace {
[[maybe_unused]] constexpr int kNothing = 0;
}
