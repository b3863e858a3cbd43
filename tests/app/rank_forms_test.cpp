// Trainings on several processes whose means are added in each of the ways of --reduce.
#include <cmath>

#include "tests/app/ranks_fixture.h"

namespace gradloom {
namespace {

class RankForms : public RanksFixture {
 protected:
  // Its losses; the parameters are in `file`.
  Words trained(const std::string& name, const std::string& ranks, const std::string& form, const Words& more,
                const std::string& file) {
    const Outcome o =
        run(training(name, with({"--ranks", ranks, "--reduce", form, "--save-params", path(file)}, more)));
    EXPECT_EQ(o.code, 0) << o.err;
    EXPECT_EQ(losses(o).size(), 3u);
    return losses(o);
  }
  void expect_same_files(const std::string& one, const std::string& other) const {
    expect_same_parameters(parameters(one), parameters(other));
  }
};

TEST_F(RankForms, TrainAlikeAndEveryTimeTheSame) {
  const Words how{"--optimizer", "adamw{lr=1e-3}", "--clip-norm", "0.5"};
  for (const std::string ranks : {"2", "3", "4"}) {
    const Words in_order = trained("bert-tiny", ranks, "order", how, "a.npz");
    for (const std::string form : {"tree", "ring"}) {
      SCOPED_TRACE(ranks + " " + form);
      Words over_mpi, over_tcp, again;
      {
        const EnvironmentVariable over("GRADLOOM_TRANSPORT", "mpi");
        over_mpi = trained("bert-tiny", ranks, form, how, "b.npz");
      }
      expect_near_parameters(parameters("a.npz"), parameters("b.npz"), 1e-11);
      const EnvironmentVariable over("GRADLOOM_TRANSPORT", "tcp");
      over_tcp = trained("bert-tiny", ranks, form, how, "c.npz");
      expect_same_files("b.npz", "c.npz");
      again = trained("bert-tiny", ranks, form,
                      with(how, {"--passes", "default,data-parallel{overlap=false}"}), "c.npz");
      expect_same_files("b.npz", "c.npz");
      EXPECT_EQ(over_mpi, over_tcp);
      EXPECT_EQ(over_mpi, again);
      expect_near_losses(over_mpi, in_order, 1e-11);
      if (ranks == "2") {
        EXPECT_EQ(over_mpi, in_order) << "a sum of two has one order";
        expect_same_files("a.npz", "b.npz");
      }
    }
  }
}

// What ranks keep for themselves is added in a tree, too, so that the bits do not depend on it; nor on where buckets end.
TEST_F(RankForms, ATreeHasTheSameBitsWhateverRanksKeepApart) {
  for (const Words& precision : {Words{"--precision", "f64"}, Words{"--precision", "bf16"}}) {
    const Words how = with(precision, {"--optimizer", "adamw{lr=1e-3}", "--clip-norm", "0.5", "--passes"});
    const Words whole = trained("bert-tiny", "3", "tree", with(how, {"default"}), "a.npz");
    for (const char* passes :
         {"default,zero", "default,zero{stage=2}", "default,data-parallel{bucket_mb=0}"}) {
      SCOPED_TRACE(passes);
      EXPECT_EQ(trained("bert-tiny", "3", "tree", with(how, {passes}), "b.npz"), whole);
      expect_same_files("a.npz", "b.npz");
    }
  }
}

TEST_F(RankForms, AReplayAddsAsTheRunDid) {
  for (const std::string form : {"tree", "ring"}) {
    SCOPED_TRACE(form);
    const std::string session = path(form + ".db"), recipe = path(form + ".json");
    const Words first = trained("bert-tiny", "3", form, {"--session", session}, "a.npz");
    ASSERT_EQ(run({"export", session, "-o", recipe}).code, 0);
    EXPECT_EQ(json::parse(read_file(recipe))["reduce"], form);
    const Outcome replay = run({"train", "--recipe", recipe, "--save-params", path("b.npz"), "--json"});
    ASSERT_EQ(replay.code, 0) << replay.err;
    EXPECT_EQ(losses(replay), first);
    expect_same_files("a.npz", "b.npz");
    EXPECT_NE(run({"show", session}).out.find("means are added as a " + form), std::string::npos);
  }
}

TEST_F(RankForms, ArePredicted) {
  const auto sent = [&](const Words& more) {
    const Outcome o =
        run(with({"plan", model("bert-tiny") + "/model.onnx", "--dim", "batch=4", "--json"}, more));
    EXPECT_EQ(o.code, 0) << o.err;
    return o.lines().back()["scaling"]["sent_bytes"].get<double>();
  };
  EXPECT_DOUBLE_EQ(sent({"--ranks", "4", "--reduce", "tree"}), sent({"--ranks", "4"}));
  EXPECT_DOUBLE_EQ(sent({"--ranks", "3", "--reduce", "ring"}), sent({"--ranks", "3"}));
  EXPECT_GT(sent({"--ranks", "3", "--reduce", "tree"}), sent({"--ranks", "3"}));
}

}  // namespace
}  // namespace gradloom
