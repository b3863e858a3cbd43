#!/usr/bin/env python3
"""Networks of diffusers in tiny configurations through gradloom.torch.Module: results and gradients are autograd's.

Nothing is downloaded: weights are random. Exits with 77 (skipped) without diffusers; ./dev test-torch runs it with the newest.
"""

import copy
import unittest

import support
import torch
from gradloom.torch import Module

(diffusers,) = support.of_hugging_face("diffusers")

torch.manual_seed(0)
TIMES = torch.tensor([3, 70])
IMAGE, LATENT, TEXT, POOLED = torch.randn(2, 3, 16, 16), torch.randn(2, 4, 8, 8), torch.randn(2, 5, 16), torch.randn(2, 16)
SMALL = {"layers_per_block": 1, "block_out_channels": (8, 16), "norm_num_groups": 4, "attention_head_dim": 4}
HEADS = {"num_attention_heads": 2, "attention_head_dim": 8, "in_channels": 4}
# (class, its options, inputs)
NETWORKS = [
    ("UNet2DModel", {**SMALL, "sample_size": 16, "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
                     "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}, {"sample": IMAGE, "timestep": TIMES}),
    ("UNet2DConditionModel", {**SMALL, "sample_size": 8, "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
                              "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"), "cross_attention_dim": 16},
     {"sample": LATENT, "timestep": TIMES, "encoder_hidden_states": TEXT}),
    ("DiTTransformer2DModel", {**HEADS, "out_channels": 4, "num_layers": 2, "sample_size": 8, "patch_size": 2, "norm_num_groups": 4,
                               "num_embeds_ada_norm": 10}, {"hidden_states": LATENT, "timestep": TIMES, "class_labels": torch.tensor([1, 2])}),
    ("AutoencoderKL", {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2,
                       "block_out_channels": (8, 16), "latent_channels": 4, "norm_num_groups": 4, "sample_size": 16}, {"sample": IMAGE}),
    ("SD3Transformer2DModel", {**HEADS, "out_channels": 4, "sample_size": 8, "patch_size": 2, "num_layers": 2, "joint_attention_dim": 16,
                               "caption_projection_dim": 16, "pooled_projection_dim": 16, "pos_embed_max_size": 8},
     {"hidden_states": LATENT, "encoder_hidden_states": TEXT, "pooled_projections": POOLED, "timestep": TIMES}),
    ("FluxTransformer2DModel", {**HEADS, "patch_size": 1, "num_layers": 1, "num_single_layers": 1, "joint_attention_dim": 16,
                                "pooled_projection_dim": 16, "axes_dims_rope": (2, 2, 4)},
     {"hidden_states": torch.randn(2, 16, 4), "encoder_hidden_states": TEXT, "pooled_projections": POOLED, "timestep": TIMES / 100,
      "img_ids": torch.zeros(16, 3), "txt_ids": torch.zeros(5, 3)}),
]  # fmt: skip


class Networks(support.Case):
    def test_gradients(self):
        count = 0
        for name, options, inputs in NETWORKS:
            if not hasattr(diffusers, name):
                continue
            with self.subTest(network=name):
                torch.manual_seed(1)
                theirs = getattr(diffusers, name)(**options).eval()  # labels are dropped at random in training
                mine = Module(copy.deepcopy(theirs))
                losses = [model(**inputs)[0].square().mean() for model in (mine, theirs)]
                for loss in losses:
                    loss.backward()
                self.assert_near(losses[0].detach(), losses[1].detach())
                self.assert_same_gradients(mine, theirs, 1e-4)
                count += 1
        self.assertGreaterEqual(count, 5)


if __name__ == "__main__":
    unittest.main()
