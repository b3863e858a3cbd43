#!/usr/bin/env python3
"""Hugging Face's architectures in tiny configurations through gradloom.torch.Module, and its Trainer and Accelerate around it.

Nothing is downloaded: weights are random. Exits with 77 (skipped) without transformers; ./dev test-torch runs it with the newest.
"""

import contextlib
import copy
import os
import sys
import tempfile
import unittest
import warnings
from unittest import mock

import support
import torch
from gradloom.torch import Module, TrainStep
from support import worst

(hf,) = support.of_hugging_face("transformers")

torch.manual_seed(0)
TOKENS = torch.randint(3, 90, (2, 8))
MASK = torch.tensor([[1] * 8, [1] * 6 + [0] * 2])
WORDS = {"input_ids": TOKENS, "attention_mask": MASK}
CAUSAL = {"input_ids": TOKENS, "labels": TOKENS}
MASKED = {**WORDS, "labels": TOKENS}
PAIRS = {**WORDS, "labels": torch.tensor([0, 1])}
IMAGE = {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.tensor([0, 1])}
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 99, "max_position_embeddings": 32}
EXPERTS = {**SIZES, "num_key_value_heads": 1, "num_experts_per_tok": 2}
VISION = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "image_size": 32, "patch_size": 8}
GPT = {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 99, "n_positions": 32}
SEQUENCE = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
            "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "vocab_size": 99}  # fmt: skip

SPEECH = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 99, "conv_dim": [8, 8],
          "conv_stride": [4, 4], "conv_kernel": [8, 8], "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4,
          "num_conv_pos_embedding_groups": 2, "mask_time_prob": 0.0}  # fmt: skip
FEW = {**SIZES, "num_key_value_heads": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}  # keys and values
SERIES = {"past_values": torch.randn(2, 10), "past_time_features": torch.randn(2, 10, 1), "past_observed_mask": torch.ones(2, 10),
          "future_values": torch.randn(2, 4), "future_time_features": torch.randn(2, 4, 1)}  # fmt: skip

# (model, configuration, its options, inputs)
MODELS = [
    ("GPT2LMHeadModel", "GPT2Config", GPT, CAUSAL),
    ("GPT2LMHeadModel", "GPT2Config", GPT, MASKED),
    ("BertForSequenceClassification", "BertConfig", SIZES, PAIRS),
    ("BertForMaskedLM", "BertConfig", SIZES, MASKED),
    ("BertForTokenClassification", "BertConfig", {**SIZES, "num_labels": 99}, MASKED),
    ("RobertaForSequenceClassification", "RobertaConfig", SIZES, PAIRS),
    ("XLMRobertaForMaskedLM", "XLMRobertaConfig", SIZES, MASKED),
    ("CamembertForMaskedLM", "CamembertConfig", SIZES, MASKED),
    ("DistilBertForSequenceClassification", "DistilBertConfig",
     {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "vocab_size": 99, "max_position_embeddings": 32}, PAIRS),
    ("AlbertForSequenceClassification", "AlbertConfig", {**SIZES, "embedding_size": 16}, PAIRS),
    ("ElectraForSequenceClassification", "ElectraConfig", {**SIZES, "embedding_size": 16}, PAIRS),
    ("MPNetForSequenceClassification", "MPNetConfig", SIZES, PAIRS),
    ("LlamaForCausalLM", "LlamaConfig", {**SIZES, "num_key_value_heads": 1}, CAUSAL),
    ("MistralForCausalLM", "MistralConfig", {**SIZES, "num_key_value_heads": 1, "sliding_window": None}, CAUSAL),
    ("Qwen2ForCausalLM", "Qwen2Config", {**SIZES, "num_key_value_heads": 1}, CAUSAL),
    ("Qwen3ForCausalLM", "Qwen3Config", {**SIZES, "num_key_value_heads": 1, "head_dim": 8}, CAUSAL),
    ("GemmaForCausalLM", "GemmaConfig", {**SIZES, "num_key_value_heads": 1, "head_dim": 8}, CAUSAL),
    ("Gemma2ForCausalLM", "Gemma2Config", {**SIZES, "num_key_value_heads": 1, "head_dim": 8}, CAUSAL),
    ("StableLmForCausalLM", "StableLmConfig", {**SIZES, "num_key_value_heads": 2}, CAUSAL),
    ("OlmoForCausalLM", "OlmoConfig", SIZES, CAUSAL),
    ("PhiForCausalLM", "PhiConfig", SIZES, CAUSAL),
    ("GPTNeoXForCausalLM", "GPTNeoXConfig", SIZES, CAUSAL),
    ("GPTNeoForCausalLM", "GPTNeoConfig", {"hidden_size": 16, "num_layers": 2, "num_heads": 2, "attention_types": [[["global", "local"], 1]],
                                           "vocab_size": 99, "max_position_embeddings": 32}, CAUSAL),
    ("GPTJForCausalLM", "GPTJConfig", {**GPT, "rotary_dim": 4}, CAUSAL),
    ("OPTForCausalLM", "OPTConfig", {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "ffn_dim": 32, "vocab_size": 99,
                                     "max_position_embeddings": 32, "word_embed_proj_dim": 16}, MASKED),
    ("BloomForCausalLM", "BloomConfig", {"hidden_size": 16, "n_layer": 2, "n_head": 2, "vocab_size": 99}, MASKED),
    ("FalconForCausalLM", "FalconConfig", {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 99}, CAUSAL),
    ("MambaForCausalLM", "MambaConfig", {"hidden_size": 16, "num_hidden_layers": 2, "vocab_size": 99, "state_size": 4},
     {**CAUSAL, "use_cache": False}),
    ("MixtralForCausalLM", "MixtralConfig", {**EXPERTS, "num_local_experts": 4}, CAUSAL),
    ("MixtralForCausalLM", "MixtralConfig", {**EXPERTS, "num_local_experts": 4, "experts_implementation": "eager"}, CAUSAL),  # in a loop
    ("Qwen2MoeForCausalLM", "Qwen2MoeConfig", {**EXPERTS, "num_experts": 4, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16}, CAUSAL),
    ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", {**EXPERTS, "head_dim": 8, "num_experts": 4, "moe_intermediate_size": 16}, CAUSAL),
    ("OlmoeForCausalLM", "OlmoeConfig", {**EXPERTS, "num_experts": 4}, CAUSAL),
    ("GptOssForCausalLM", "GptOssConfig", {**EXPERTS, "head_dim": 8, "num_local_experts": 4}, CAUSAL),
    ("DeepseekV3ForCausalLM", "DeepseekV3Config",
     {**EXPERTS, "num_key_value_heads": 2, "n_routed_experts": 4, "n_group": 2, "topk_group": 1, "moe_intermediate_size": 16, "kv_lora_rank": 8,
      "q_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8, "first_k_dense_replace": 1}, CAUSAL),
    ("XLNetLMHeadModel", "XLNetConfig", {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 32, "vocab_size": 99}, CAUSAL),
    ("T5ForConditionalGeneration", "T5Config",
     {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "vocab_size": 99, "decoder_start_token_id": 0}, MASKED),
    ("BartForConditionalGeneration", "BartConfig", {**SEQUENCE, "max_position_embeddings": 32}, MASKED),
    ("WhisperForConditionalGeneration", "WhisperConfig",
     {**SEQUENCE, "num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 16, "pad_token_id": 0, "bos_token_id": 1,
      "eos_token_id": 2, "decoder_start_token_id": 1}, {"input_features": torch.randn(2, 8, 32), "labels": TOKENS}),
    ("Wav2Vec2ForCTC", "Wav2Vec2Config",
     {**SIZES, "conv_dim": [8, 8], "conv_stride": [4, 4], "conv_kernel": [8, 8], "num_feat_extract_layers": 2,
      "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "mask_time_prob": 0.0}, {"input_values": torch.randn(2, 400)}),
    ("ViTForImageClassification", "ViTConfig", VISION, IMAGE),
    ("DeiTForImageClassification", "DeiTConfig", VISION, IMAGE),
    ("BeitForImageClassification", "BeitConfig", VISION, IMAGE),
    ("Dinov2ForImageClassification", "Dinov2Config", VISION, IMAGE),
    ("ConvNextForImageClassification", "ConvNextConfig", {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2}, IMAGE),
    ("ResNetForImageClassification", "ResNetConfig", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}, IMAGE),
    ("SwinForImageClassification", "SwinConfig",
     {"embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4, "image_size": 32, "patch_size": 4}, IMAGE),
    ("MobileNetV2ForImageClassification", "MobileNetV2Config", {"image_size": 32, "depth_multiplier": 0.25}, IMAGE),
    ("SegformerForImageClassification", "SegformerConfig", {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1],
                                                           "num_attention_heads": [1, 1, 2, 2], "decoder_hidden_size": 16}, IMAGE),
    ("CLIPModel", "CLIPConfig", {"text_config": {**SIZES, "eos_token_id": 98}, "vision_config": VISION, "projection_dim": 8},
     {**WORDS, "pixel_values": IMAGE["pixel_values"], "return_loss": True}),
    ("Mamba2ForCausalLM", "Mamba2Config", {"hidden_size": 16, "num_hidden_layers": 2, "vocab_size": 99, "state_size": 4, "num_heads": 4,
                                           "head_dim": 8, "n_groups": 1, "chunk_size": 4}, CAUSAL),
    ("FalconMambaForCausalLM", "FalconMambaConfig", {"hidden_size": 16, "num_hidden_layers": 2, "vocab_size": 99, "state_size": 4}, CAUSAL),
    ("BambaForCausalLM", "BambaConfig", {**FEW, "mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 4, "mamba_n_groups": 1,
                                         "mamba_chunk_size": 4, "attn_layer_indices": [1]}, CAUSAL),
    ("Qwen3NextForCausalLM", "Qwen3NextConfig",
     {**FEW, "head_dim": 8, "linear_num_key_heads": 1, "linear_num_value_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
      "layer_types": ["linear_attention", "full_attention"], "mlp_only_layers": [0, 1], "num_experts": 2}, CAUSAL),
    ("Llama4ForCausalLM", "Llama4TextConfig", {**FEW, "head_dim": 8, "intermediate_size_mlp": 32, "moe_layers": []}, CAUSAL),
    ("FNetForMaskedLM", "FNetConfig", SIZES, CAUSAL),
    ("FunnelForMaskedLM", "FunnelConfig",
     {"vocab_size": 99, "block_sizes": [1, 1], "num_decoder_layers": 1, "d_model": 16, "n_head": 2, "d_head": 8, "d_inner": 32}, MASKED),
    ("EfficientNetForImageClassification", "EfficientNetConfig",
     {"image_size": 32, "width_coefficient": 0.25, "depth_coefficient": 0.3, "hidden_dim": 320}, IMAGE),
    ("YosoForMaskedLM", "YosoConfig", {**SIZES, "use_expectation": True}, MASKED),
    ("LongT5ForConditionalGeneration", "LongT5Config",
     {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "vocab_size": 99, "decoder_start_token_id": 0, "local_radius": 3}, MASKED),
    ("HubertForCTC", "HubertConfig", SPEECH, {"input_values": torch.randn(2, 400), "labels": torch.randint(1, 20, (2, 4))}),
    ("WavLMForSequenceClassification", "WavLMConfig", SPEECH, {"input_values": torch.randn(2, 400), "labels": torch.tensor([0, 1])}),
    ("LlavaForConditionalGeneration", "LlavaConfig",
     {"text_config": {**FEW, "model_type": "llama"}, "vision_config": {**VISION, "model_type": "clip_vision_model"}, "image_token_index": 98,
      "vision_feature_layer": -1, "image_seq_length": 16},
     {"input_ids": torch.cat([torch.full((2, 16), 98), TOKENS], 1), "pixel_values": IMAGE["pixel_values"],
      "labels": torch.cat([torch.full((2, 16), -100), TOKENS], 1)}),
    ("BlipForConditionalGeneration", "BlipConfig", {"text_config": {**FEW, "encoder_hidden_size": 16}, "vision_config": VISION, "projection_dim": 8},
     {"input_ids": TOKENS, "pixel_values": IMAGE["pixel_values"], "labels": TOKENS}),
    ("MobileViTForImageClassification", "MobileViTConfig",
     {"image_size": 32, "hidden_sizes": [16, 16, 16], "neck_hidden_sizes": [8, 8, 8, 16, 16, 16, 32]}, IMAGE),
    ("HieraForImageClassification", "HieraConfig",
     {"image_size": [32, 32], "embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "patch_size": [7, 7], "patch_stride": [4, 4],
      "query_stride": [2, 2], "num_query_pool": 1, "masked_unit_size": [4, 4]}, IMAGE),
    ("VideoMAEForVideoClassification", "VideoMAEConfig", {**VISION, "num_frames": 4, "tubelet_size": 2},
     {"pixel_values": torch.randn(1, 4, 3, 32, 32), "labels": torch.tensor([1])}),
    ("PatchTSTForPrediction", "PatchTSTConfig",
     {"num_input_channels": 3, "context_length": 16, "prediction_length": 4, "patch_length": 4, "patch_stride": 4, "d_model": 16,
      "num_attention_heads": 2, "num_hidden_layers": 2, "ffn_dim": 32}, {"past_values": torch.randn(2, 16, 3), "future_values": torch.randn(2, 4, 3)}),
    ("AutoformerForPrediction", "AutoformerConfig",
     {"prediction_length": 4, "context_length": 8, "lags_sequence": [1, 2], "num_time_features": 1, "d_model": 16, "encoder_layers": 1,
      "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16,
      "label_length": 4, "moving_average": 3}, SERIES),
]  # fmt: skip


def make(model, config, options):
    torch.manual_seed(0)
    made = getattr(hf, model)(getattr(hf, config)(**options)).eval()
    with torch.no_grad():
        for p in made.parameters():
            p.add_(0.02 * torch.randn_like(p))
    return made


def loss_of(output):
    return output["loss"] if output.get("loss") is not None else output[0].square().mean()


def nearer(mine, theirs, inputs, least):
    """Whether our gradients are nearer to those of f64 than PyTorch's are: by the largest distance of all, each measured by `least` at least."""
    exact = copy.deepcopy(theirs).double()
    wide = {key: x.double() if torch.is_tensor(x) and x.is_floating_point() else x for key, x in inputs.items()}
    with all_f64():
        loss_of(exact(**wide)).backward()
    ours, torchs = (max(worst([p.grad], [r.grad], least) for p, r in zip(model.parameters(), exact.parameters()) if r.grad is not None)
                    for model in (mine, theirs))  # fmt: skip
    return ours < torchs


# In f32 PyTorch's gradients of these are more than 1e-4 off f64's themselves.
ROUNDED = {"EfficientNetForImageClassification"}


class Architectures(unittest.TestCase):
    def test_gradients(self):
        count = 0
        for model, config, options, inputs in MODELS:
            with self.subTest(model=model):
                try:
                    theirs = make(model, config, options)
                except AttributeError:
                    continue  # this transformers lacks it
                mine = Module(copy.deepcopy(theirs))
                results = [m(**inputs) for m in (mine, theirs)]
                self.assertIs(type(results[0]), type(results[1]))
                for result in results:
                    loss_of(result).backward()
                self.assertLess(worst([loss_of(results[0])], [loss_of(results[1])]), 1e-5)
                largest = max(float(q.grad.abs().max()) for q in theirs.parameters() if q.grad is not None)
                apart = {name: worst([p.grad], [q.grad], 1e-3 * largest)  # some are zero but for rounding: a key's bias moves all scores alike
                         for (name, p), q in zip(mine.named_parameters(), theirs.parameters()) if q.grad is not None}  # fmt: skip
                farthest = max(apart, key=apart.__getitem__)
                if model in ROUNDED:
                    self.assertTrue(nearer(mine, theirs, inputs, 1e-3 * largest))
                    self.assertLess(apart[farthest], 3e-4, farthest)
                else:
                    self.assertLess(apart[farthest], 1e-4, farthest)
                count += 1
        self.assertGreaterEqual(count, 55)


    def test_what_only_the_data_tell_is_refused(self):
        """DeBERTa picks the rows that have labels, whose number differs from batch to batch."""
        with self.assertRaisesRegex(support.gradloom.UnsupportedError, "asks what rows a mask chooses"):
            Module(make("DebertaV2ForSequenceClassification", "DebertaV2Config", SIZES))(**PAIRS)


def without_dropout(config):
    """Of parts as well."""
    for key, value in list(vars(config).items()):
        if isinstance(value, float) and "drop" in key:
            setattr(config, key, 0.0)
        elif hasattr(value, "to_dict"):
            without_dropout(value)
    return config


@contextlib.contextmanager
def all_f64():
    """Parts that compute in f32 whatever the model's type is (losses, norms, rotary positions) do so in f64: nothing is rounded to f32."""
    wide = [(torch, "float32", torch.float64), (torch, "float", torch.float64), (torch.Tensor, "float", torch.Tensor.double)]
    with contextlib.ExitStack() as stack:
        for owner, name, value in wide:
            stack.enter_context(mock.patch.object(owner, name, value))
        yield


READS = {"AutoformerForPrediction"}  # in training its attention asks for numbers


class InF64(unittest.TestCase):
    def check(self, model, config, options, inputs, training):
        torch.manual_seed(0)
        theirs = getattr(hf, model)(without_dropout(getattr(hf, config)(**options))).train(training)
        with torch.no_grad():
            for p in theirs.parameters():
                p.add_(0.02 * torch.randn_like(p))
        for part in theirs.modules():
            for name in ("eps", "variance_epsilon"):
                if isinstance(getattr(part, name, None), float):
                    setattr(part, name, 2.0**-14)  # a file has it as f32
        if training and "MobileNet" in model:  # of two pictures as small as one pixel a BatchNormalization has hardly a gradient
            inputs = {"pixel_values": torch.randn(8, 3, 32, 32), "labels": torch.tensor([0, 1] * 4)}
        inputs = {key: x.double() if torch.is_tensor(x) and x.is_floating_point() else x for key, x in inputs.items()}
        fallback = "torch" if training and model in READS else None
        mine, losses = Module(copy.deepcopy(theirs.double()), fallback=fallback), []
        for m in (mine, theirs):
            torch.manual_seed(1)
            with all_f64(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the fallback
                losses.append(loss_of(m(**inputs)))
            losses[-1].backward()
        self.assertLess(worst(*([loss] for loss in losses)), 1e-9)
        largest = max(float(q.grad.abs().max()) for q in theirs.parameters() if q.grad is not None)
        for (name, p), q in zip(mine.named_parameters(), theirs.parameters()):
            self.assertEqual(p.grad is None, q.grad is None, name)
            if q.grad is not None:
                self.assertLess(float((p.grad - q.grad).abs().max()) / max(float(q.grad.abs().max()), 1e-3 * largest), 1e-9, name)
        self.assertLess(worst(*([b for b in m.buffers() if b.is_floating_point()] for m in (mine, theirs)), 1.0), 1e-6)  # a file's momentum is f32

    def test_gradients(self):
        count = 0
        for row in MODELS:
            if not hasattr(hf, row[0]) or row[2].get("num_experts_per_tok"):
                continue  # PyTorch's grouped_mm has no f64 (experts_test.py has a reference)
            for training in (False, True):
                with self.subTest(model=row[0], training=training):
                    self.check(*row, training)
                    count += 1
        self.assertGreaterEqual(count, 100)


class Lengths(unittest.TestCase):
    """Batches padded to their longest text, in buckets: the numbers are those without a fill."""

    NETWORKS = {
        "BertForTokenClassification": ({"input_ids", "attention_mask", "labels"}, 16),
        "GPT2LMHeadModel": ({"input_ids", "labels"}, [16, 24]),
        "LlamaForCausalLM": ({"input_ids", "attention_mask", "labels"}, {1: 8, 0: 4}),
        "T5ForConditionalGeneration": ({"input_ids", "attention_mask", "labels"}, {"input_ids": {1: 16}, "attention_mask": {1: 16}, "labels": {1: [8, 16]}}),
    }

    def batches(self, names, count):
        draw = torch.Generator().manual_seed(1)
        for t, others in ((5, 9), (12, 4), (16, 16), (20, 11), (9, 9))[:count]:
            rows = int(torch.randint(2, 5, (), generator=draw))
            mask = (torch.arange(t) < torch.randint(2, t + 1, (rows, 1), generator=draw)).long()
            words = torch.randint(3, 90, (rows, t), generator=draw) * mask
            labels = torch.randint(0, 2, (rows, others if "T5" in self.model else t), generator=draw)
            made = {"input_ids": words, "attention_mask": mask, "labels": labels}
            yield {name: made[name] for name in made if name in names}

    def test_gradients(self):
        """In training mode, without dropout."""
        for self.model, (names, buckets) in self.NETWORKS.items():
            if not hasattr(hf, self.model):
                continue
            config, options = {row[0]: row[1:3] for row in MODELS}.get(self.model, ("BertConfig", SIZES))
            torch.manual_seed(0)
            theirs = getattr(hf, self.model)(without_dropout(getattr(hf, config)(**options))).double().train()
            mine = Module(copy.deepcopy(theirs), buckets=buckets)
            for batch in self.batches(names, 5):
                results = []
                for m in (mine, theirs):
                    m.zero_grad()
                    with all_f64():
                        results.append(m(**batch))
                    results[-1].loss.backward()
                with self.subTest(model=self.model, shape=batch["input_ids"].shape):
                    self.assertEqual(results[0].logits.shape, results[1].logits.shape)
                    self.assertLess(worst(*([r.loss] for r in results)), 1e-9)
                    self.assertLess(worst(*([r.logits] for r in results)), 1e-9)
                    largest = max(float(q.grad.abs().max()) for q in theirs.parameters() if q.grad is not None)
                    for (name, p), q in zip(mine.named_parameters(), theirs.parameters()):
                        if q.grad is not None:
                            self.assertLess(worst([p.grad], [q.grad], 1e-3 * largest), 1e-9, name)


class UnderAutocast(unittest.TestCase):
    """T5's gradients beside those of torch.autocast, and of f64."""

    SIZES = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "vocab_size": 99, "decoder_start_token_id": 0, "dropout_rate": 0.0}

    def gradients(self, activation, seed):
        """By (name, ours, PyTorch's), and how near to 0 each unit's sum comes, of the length of its operands, in f64."""
        torch.manual_seed(seed)
        theirs = hf.T5ForConditionalGeneration(hf.T5Config(**self.SIZES, feed_forward_proj=activation))
        inputs = {"input_ids": torch.randint(1, 90, (2, 8)), "labels": torch.randint(1, 90, (2, 6))}
        mine, exact, nearest = Module(copy.deepcopy(theirs)), copy.deepcopy(theirs).double(), {}
        for name, part in exact.named_modules():
            if name.endswith("DenseReluDense.wi"):

                def hook(part, given, result, name=name + ".weight"):
                    x = given[0]
                    lengths = x.norm(dim=-1, keepdim=True) * part.weight.norm(dim=-1)
                    nearest[name] = (result / lengths).detach().abs().flatten(0, 1).min(0).values

                part.register_forward_hook(hook)
        exact(**inputs)
        for module in (mine, theirs):
            with torch.autocast("cpu", torch.bfloat16):
                loss = module(**inputs).loss
            loss.backward()
        return [(name, p.grad, q.grad) for (name, p), q in zip(mine.named_parameters(), theirs.parameters())], nearest

    def test_what_is_apart_are_units_of_relu_at_zero(self):
        """Which rounding to 16 bits, ours or PyTorch's, puts on the other side: the loss hardly moves, one row of a gradient is another, and what is
        before it in the network moves along. With GELU in their place nothing does."""
        flipped = 0
        for seed in range(6):
            for activation in ("gelu", "relu"):
                rows, nearest = self.gradients(activation, seed)
                apart = {name: (a - b).abs().reshape(a.shape[0], -1).amax(1) / b.abs().max() for name, a, b in rows}
                units = [(name, unit) for name in nearest for unit in (apart[name] > 0.1).nonzero().flatten().tolist()]
                self.assertLessEqual(len(units), 0 if activation == "gelu" else 3)
                for name, unit in units:
                    self.assertLess(float(nearest[name][unit]), 2.0**-8, f"{name} {unit}")
                if not units:
                    self.assertLess(max(float(each.max()) for each in apart.values()), 0.12, f"{activation} {seed}")
                flipped += len(units)
        self.assertGreaterEqual(flipped, 2)


class Steps(unittest.TestCase):
    def test_losses(self):
        """Six steps of AdamW: transforms, a scan, and a loss that PyTorch computes."""
        speech = {f"{part}_dropout": 0.0 for part in ("hidden", "attention", "activation", "feat_proj", "final")}
        wanted = {"FNetForMaskedLM": {"hidden_dropout_prob": 0.0}, "Mamba2ForCausalLM": {}, "HubertForCTC": {**speech, "layerdrop": 0.0}}
        rows = [row for row in MODELS if row[0] in wanted and hasattr(hf, row[0])]
        for model, config, options, inputs in rows:
            with self.subTest(model=model):
                theirs = make(model, config, {**options, **wanted[model]}).train()
                mine = copy.deepcopy(theirs)
                optimizer = torch.optim.AdamW(theirs.parameters(), lr=1e-3)
                step = TrainStep(mine, None, torch.optim.AdamW(mine.parameters(), lr=1e-3))
                for _ in range(6):
                    optimizer.zero_grad()
                    loss = theirs(**inputs).loss
                    loss.backward()
                    optimizer.step()
                    self.assertAlmostEqual(float(step.step(**inputs)) / float(loss.detach()), 1.0, places=5)


class Loops(unittest.TestCase):
    """200 steps: losses as PyTorch's."""

    def setUp(self):
        generator = torch.Generator().manual_seed(5)
        tokens = torch.randint(3, 90, (64, 8), generator=generator)
        none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        gpt = hf.GPT2Config(**GPT, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
        self.cases = {
            "GPT-2": (lambda: hf.GPT2LMHeadModel(gpt), [{"input_ids": t, "labels": t} for t in tokens]),
            "BERT": (lambda: hf.BertForSequenceClassification(hf.BertConfig(**SIZES, **none)),
                     [{"input_ids": t, "attention_mask": torch.ones_like(t), "labels": t[0] % 2} for t in tokens]),
        }  # fmt: skip

    def check(self, train, count):
        """train: of a model and its rows, a list of losses."""
        for name, (make, rows) in self.cases.items():
            with self.subTest(model=name):
                curves = []
                for wrap in (Module, lambda m: m):
                    torch.manual_seed(1)
                    curves.append(train(wrap(make()), rows))
                self.assertEqual([len(curve) for curve in curves], [count, count])
                self.assertLess(curves[1][-1], curves[1][0])
                self.assertLess(max(abs(a - b) for a, b in zip(*curves)), 2e-2)

    def test_plain_loop(self):
        def train(model, rows):
            loader, losses = torch.utils.data.DataLoader(rows, batch_size=4), []
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            while len(losses) < 200:
                for batch in loader:
                    optimizer.zero_grad()
                    loss = model(**batch).loss
                    loss.backward()
                    optimizer.step()
                    losses.append(float(loss.detach()))
            return losses[:200]

        self.check(train, 200)

    def test_trainer(self):
        def train(model, rows):
            with tempfile.TemporaryDirectory() as folder:
                arguments = hf.TrainingArguments(folder, max_steps=200, per_device_train_batch_size=4, learning_rate=1e-3, logging_steps=10,
                                                 save_strategy="no", report_to=[], use_cpu=True, seed=3, disable_tqdm=True)  # fmt: skip
                trainer = hf.Trainer(model=model, args=arguments, train_dataset=rows)
                trainer.train()
                return [row["loss"] for row in trainer.state.log_history if "loss" in row]

        self.check(train, 20)

    def trained(self, model, rows, folder, resume=None, **more):
        """20 steps of Trainer with evaluation and checkpoints: losses of steps and of held-out rows, by their step."""
        arguments = hf.TrainingArguments(folder, max_steps=20, per_device_train_batch_size=4, learning_rate=1e-3, logging_steps=1, save_steps=10,
                                         eval_strategy="steps", eval_steps=5, report_to=[], use_cpu=True, seed=3, disable_tqdm=True, **more)  # fmt: skip
        trainer = hf.Trainer(model=model, args=arguments, train_dataset=rows[:48], eval_dataset=rows[48:])
        trainer.train(resume_from_checkpoint=resume)
        log = trainer.state.log_history
        return [(row["step"], row.get("loss", row.get("eval_loss"))) for row in log if "loss" in row or "eval_loss" in row]

    def test_trainer_evaluates_saves_and_goes_on(self):
        make, rows = self.cases["BERT"]
        curves, resumed = [], []
        for wrap in (Module, lambda m: m):
            with tempfile.TemporaryDirectory() as folder:
                torch.manual_seed(1)
                curves.append(self.trained(wrap(make()), rows, folder))
                torch.manual_seed(2)  # other parameters, which the checkpoint replaces
                resumed.append(self.trained(wrap(make()), rows, folder, os.path.join(folder, "checkpoint-10")))
        for mine, theirs in (curves, resumed):
            self.assertEqual([step for step, _ in mine], [step for step, _ in theirs])
            self.assertLess(max(abs(a - b) for (_, a), (_, b) in zip(mine, theirs)), 1e-4)
        self.assertEqual(len(curves[0]), 24)
        late = [row for row in curves[0] if row[0] > 10]
        again = [row for row in resumed[0] if row[0] > 10]
        self.assertEqual(len(again), 12)
        self.assertLess(max(abs(a - b) for (_, a), (_, b) in zip(late, again)), 1e-5)

    def test_trainer_in_bf16(self):
        make, rows = self.cases["BERT"]
        curves = []
        for wrap, low in ((Module, True), (lambda m: m, True), (lambda m: m, False)):
            with tempfile.TemporaryDirectory() as folder:
                torch.manual_seed(1)
                curves.append([loss for _, loss in self.trained(wrap(make()), rows, folder, bf16=low)])
        mine, theirs, exact = curves
        self.assertEqual(len(mine), len(exact))
        self.assertNotEqual(mine, exact)
        self.assertLess(max(abs(a - b) for a, b in zip(mine, theirs)), 3e-2)

    def test_accelerate_evaluates_saves_and_goes_on_in_bf16(self):
        try:
            from accelerate import Accelerator
            from accelerate.state import AcceleratorState
        except ImportError:
            self.skipTest("no accelerate")
        make, rows = self.cases["BERT"]
        curves = []
        AcceleratorState._reset_state(True)  # a process has one precision
        self.addCleanup(AcceleratorState._reset_state, True)
        for wrap in (Module, lambda m: m):
            accelerator, losses = Accelerator(cpu=True, mixed_precision="bf16"), []
            torch.manual_seed(1)
            model = wrap(make())
            loader = torch.utils.data.DataLoader(rows[:48], batch_size=4)
            model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3), loader)

            def epoch():
                for batch in loader:
                    optimizer.zero_grad()
                    loss = model(**batch).loss
                    accelerator.backward(loss)
                    optimizer.step()
                    losses.append(float(loss.detach()))
                model.eval()
                with torch.no_grad():
                    result = model(**torch.utils.data.default_collate(rows[48:]))
                    losses.append(float(result.loss))
                    self.assertEqual(result.logits.dtype, torch.float32)  # by Accelerate
                model.train()

            epoch()
            with tempfile.TemporaryDirectory() as folder:
                accelerator.save_state(folder)
                epoch()
                first, count = losses[13:], len(losses)
                accelerator.load_state(folder)
            epoch()
            self.assertEqual(losses[count:], first)
            curves.append(losses)
            accelerator.free_memory()
        self.assertLess(max(abs(a - b) for a, b in zip(*curves)), 3e-2)

    def test_accelerate(self):
        try:
            from accelerate import Accelerator
        except ImportError:
            self.skipTest("no accelerate")

        def train(model, rows):
            accelerator, losses = Accelerator(cpu=True), []
            loader = torch.utils.data.DataLoader(rows, batch_size=4)
            model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3), loader)
            while len(losses) < 200:
                for batch in loader:
                    optimizer.zero_grad()
                    loss = model(**batch).loss
                    accelerator.backward(loss)
                    optimizer.step()
                    losses.append(float(loss.detach()))
            return losses[:200]

        self.check(train, 200)


if __name__ == "__main__":
    support.torch.set_num_threads(1)
    sys.exit(unittest.main(verbosity=1))
