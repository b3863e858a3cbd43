// The files that training leaves: what was trained is kept where it can be.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/job.h"

namespace gradloom {

struct TrainedFiles {
  std::string params;   // --save-params FILE.npz or FILE.safetensors; empty: not asked for
  std::string onnx;     // --export-onnx FILE.onnx; empty: not asked for
  std::string session;  // beside which they go where the places asked for take them no more; may be empty
  bool wanted() const { return !params.empty() || !onnx.empty(); }
};

// Before the first step: the places take files (told without leaving any), no two names are the same, and
// neither file would be too large for its format. Errors: Errc::io, Errc::usage, Errc::limit.
Status check_places(const TrainedFiles& files);
Status check_sizes(const TrainedFiles& files, const Graph& graph);

// One of them as it was written.
struct SavedFile {
  std::string asked, path;  // `path` empty: it could be written nowhere
  std::string problem;      // why not where it was asked for; empty: it lies there
};
// Parameters in a file of their own, and as a model where that was asked for; each whole or not at all. Where the place
// that was asked for does not take the file it is tried beside the session, then in $TMPDIR (else /tmp),
// under a name that is free there. A model that cannot be made (its source is gone) leaves its
// parameters as FILE.onnx.npz.
std::vector<SavedFile> save_trained(const TrainedFiles& files, const Job& job,
                                    const std::map<std::string, Tensor>& parameters);
// Errc::io, one line for all that is not where it should be: "cannot write p.npz: ...;
// the parameters are in /tmp/p.npz".
Status saved_where_asked(const std::vector<SavedFile>& saved);

}  // namespace gradloom
