// Checkpoints of which each rank writes its shard: whole, in any form, and refused where one is not as it was written.
#include "app/checkpoint_shards.h"
#include "tests/app/ranks_fixture.h"

namespace gradloom {
namespace {

class RankShards : public RanksFixture {
 protected:
  void expect_joined(const std::string& sharded, const std::string& whole);
  void expect_one_checkpoint(const char* name, const char* optimizer, const char* passes,
                             const char* precision = "f64");
};

// A checkpoint that ranks write in shards is, joined, that of one rank, whatever each keeps.
TEST_F(RankShards, WriteOneCheckpointOfStatesThatAreApart) {
  expect_one_checkpoint("bert-tiny", "adamw{lr=1e-3}", "default,zero");
  expect_one_checkpoint("bert-tiny", "adamw{lr=1e-3}", "default,zero{stage=2}");
  // Whose parameters are cut.
  expect_one_checkpoint("gpt-char", "adamw{lr=1e-3}", "default,zero{stage=2}");
  expect_one_checkpoint("gpt-char", "adamw{lr=1e-3,eight_bit_states=true}", "default,zero");
  // Whose parameters are apart, too.
  expect_one_checkpoint("gpt-char", "adamw{lr=1e-3}", "default,zero", "bf16");
  expect_one_checkpoint("bert-tiny", "lamb{lr=0.01}", "default,zero{stage=2}", "bf16");
}

void RankShards::expect_one_checkpoint(const char* name, const char* optimizer, const char* passes,
                                       const char* precision) {
  SCOPED_TRACE(std::string(name) + " " + optimizer + " " + passes + " " + precision);
  for (const char* folder : {"a", "b", "c"}) fs::remove_all(path(folder));
  const Words common{"--optimizer", optimizer, "--precision", precision}, apart{"--passes", passes};
  const Outcome whole = run(
      training(name, with(common, {"--ranks", "2", "--checkpoint", path("a"), "--checkpoint-every", "1"})));
  ASSERT_EQ(whole.code, 0) << whole.err;
  const Outcome first =
      run(training(name, with(with(common, apart), {"--ranks", "2", "--steps", "2", "--checkpoint", path("b"),
                                                    "--checkpoint-every", "1"})));
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_FALSE(fs::exists(path("b/step-00000002/optimizer.safetensors")));
  EXPECT_TRUE(fs::exists(path("b/step-00000002/" + shard_name(1, 2))));
  expect_joined("b/step-00000002", "a/step-00000002");
  for (const Words& how : {Words{"--ranks", "2", "--passes", "default,zero"},
                           Words{"--ranks", "2", "--passes", "default,zero{stage=2}"},
                           Words{"--ranks", "3", "--passes", "default,zero{stage=2}"},
                           Words{"--ranks", "1", "--accumulate", "2", "--passes", "default"}}) {
    fs::remove_all(path("c"));
    fs::copy(path("b"), path("c"), fs::copy_options::recursive);
    const Outcome rest =
        run(with({"train", "--resume", path("c"), "--checkpoint", path("c"), "--steps", "3", "--json"}, how));
    ASSERT_EQ(rest.code, 0) << rest.err;
    if (how[1] == "2") {
      expect_joined("c/step-00000003", "a/step-00000003");
    }
  }
}

// The first, as one rank writes it, has the bytes of the second.
void RankShards::expect_joined(const std::string& sharded, const std::string& whole) {
  fs::remove_all(path("j"));
  const Outcome joined = run({"export", "--checkpoint", path(sharded), "-o", path("j"), "--json"});
  ASSERT_EQ(joined.code, 0) << joined.err;
  for (const char* file : {"/model.safetensors", "/optimizer.safetensors"})
    EXPECT_EQ(read_file(path("j") + file), read_file(path(whole) + file)) << file;
}

// From each of these to each other: the losses are those of a training that goes on from the checkpoint in one file.
TEST_F(RankShards, GoOnFromShardsAsFromOneFileInEveryForm) {
  struct Form {
    const char *ranks, *passes;
  };
  const Form forms[] = {{"1", "default"},      {"2", "default"},
                        {"2", "default,zero"}, {"2", "default,zero{stage=2}"},
                        {"4", "default,zero"}, {"4", "default,zero{stage=2}"}};
  const Words kinds[] = {{"--optimizer", "adamw{lr=1e-3}", "--ema", "0.9"},
                         {"--optimizer", "adamw{lr=1e-3,eight_bit_states=true}", "--precision", "f32"},
                         {"--optimizer", "lamb{lr=0.01}", "--clip-norm", "0.5"},
                         {"--optimizer", "adamw{lr=1e-3}", "--precision", "bf16"}};
  for (const Words& kind : kinds) {
    for (const Form& from : forms) {
      // All ways for the first kind, the others from the most ranks.
      if (std::string(from.passes) == "default" || (&kind != kinds && std::string(from.ranks) == "2"))
        continue;
      SCOPED_TRACE(kind[1] + " from " + from.ranks + " " + from.passes);
      for (const char* folder : {"s", "j"}) fs::remove_all(path(folder));
      const Outcome first =
          run(training("gpt-char", with(kind, {"--dim", "batch=1", "--ranks", from.ranks, "--passes",
                                               from.passes, "--steps", "2", "--checkpoint", path("s")})));
      ASSERT_EQ(first.code, 0) << first.err;
      ASSERT_TRUE(fs::exists(path("s/step-00000002/" + shard_name(0, std::stoi(from.ranks)))));
      ASSERT_EQ(run({"export", "--checkpoint", path("s"), "-o", path("j")}).code, 0);
      for (const Form& to : forms) {
        if (&kind != kinds && std::string(to.ranks) == "2") continue;
        SCOPED_TRACE(std::string("to ") + to.ranks + " " + to.passes);
        const auto go_on = [&](const std::string& checkpoint) {
          return run({"train", "--resume", path(checkpoint), "--ranks", to.ranks, "--passes", to.passes,
                      "--steps", "4", "--json"});
        };
        const Outcome shards = go_on("s"), one = go_on("j");
        ASSERT_EQ(shards.code, 0) << shards.err;
        EXPECT_EQ(losses(shards).size(), 2u);
        EXPECT_EQ(losses(shards), losses(one));
      }
    }
  }
}

// Whatever is wrong with a shard is one line that names it, on one rank and on several.
TEST_F(RankShards, RefuseShardsThatAreNotAsTheyWereWritten) {
  const auto train = [&](const char* folder, const char* seed) {
    const Outcome o =
        run(training("gpt-char", {"--ranks", "2", "--passes", "default,zero", "--optimizer", "adamw{lr=1e-3}",
                                  "--seed", seed, "--checkpoint", path(folder), "--checkpoint-every", "1"}));
    ASSERT_EQ(o.code, 0) << o.err;
  };
  train("c", "1");
  train("other", "2");
  const std::string folder = path("c/step-00000003/"), first = folder + shard_name(0, 2),
                    second = folder + shard_name(1, 2), whole = read_file(second);
  const auto expect_refused = [&](const std::string& what) {
    for (const char* ranks : {"1", "2"}) {
      const Outcome o = run({"train", "--resume", path("c"), "--ranks", ranks, "--steps", "5", "--json"});
      EXPECT_EQ(o.code, 3) << o.err;
      EXPECT_EQ(std::count(o.err.begin(), o.err.end(), '\n'), 1) << o.err;
      EXPECT_NE(o.err.find(second + ": " + what), std::string::npos) << o.err;
      EXPECT_NE(o.err.find("the newest that is whole is " + path("c/step-00000002")), std::string::npos)
          << o.err;
    }
  };
  fs::remove(second);
  expect_refused("is missing");
  std::ofstream(second, std::ios::binary) << whole.substr(0, whole.size() / 2);
  expect_refused("is damaged: it has ");
  std::string flipped = whole;
  flipped[whole.size() - 9] ^= 1;
  std::ofstream(second, std::ios::binary) << flipped;
  expect_refused("is damaged: its checksum is wrong");
  fs::copy_file(path("other/step-00000003/" + shard_name(1, 2)), second,
                fs::copy_options::overwrite_existing);
  expect_refused("is damaged: ");
  std::ofstream(second, std::ios::binary) << read_file(first);  // that of the other rank
  expect_refused("is damaged: ");
  std::ofstream(second, std::ios::binary) << whole;
  EXPECT_EQ(run({"train", "--resume", path("c"), "--ranks", "2", "--steps", "5"}).code, 0);
}

}  // namespace
}  // namespace gradloom
