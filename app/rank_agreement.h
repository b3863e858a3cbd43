// What the ranks of a training must have in common, looked at before it begins. One line names the rank and what is different.
#pragma once

#include "app/job.h"
#include "engine/ranks/world.h"

namespace gradloom {

// Errc::device: a rank runs another version or commit of the program than rank 0. All call, first of all that they exchange.
Status check_same_build(World& world);
// Errc::device: a rank has another model, setting or plan than rank 0, or begins with other numbers: `checkpoint`, the hash of the one that it
// goes on from, empty where that is none, and the files that the recipe loads. What belongs to a machine may differ: paths, threads, number
// of the device, what libraries are tried. Errc::io: a file that is loaded cannot be read. Nothing to do with one rank.
Status check_same_on_all_ranks(const Job& job, const std::string& checkpoint);
// A line on a rank whose data have another number of batches than rank 0's; empty where there is none. All call.
Result<std::string> about_other_data(const Job& job);

}  // namespace gradloom
