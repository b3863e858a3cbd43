#!/usr/bin/env python3
"""PEFT's adapters through gradloom.torch.Module: gradients of what is trained are autograd's, frozen weights get none, and a plan holds none.

Nothing is downloaded: weights are random. Exits with 77 (skipped) without transformers and peft; ./dev test-torch runs it with the newest.
"""

import copy
import unittest

import support
import torch
from gradloom.torch import Module, TrainStep

peft, hf = support.of_hugging_face("peft", "transformers")

LLAMA = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 32,
         "vocab_size": 99, "max_position_embeddings": 32}  # fmt: skip
GPT = {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": 99, "n_positions": 32, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
       "attn_pdrop": 0.0, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip


def adapted(base, **options):
    model = peft.get_peft_model(base, peft.LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, task_type="CAUSAL_LM", **options))
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name:  # zeros, which hide the gradients of lora_A
                p.normal_(0, 0.02)
    return model


def llama(**options):
    return adapted(hf.LlamaForCausalLM(hf.LlamaConfig(**LLAMA)), **options)


def checkpointed():
    model = llama(target_modules="all-linear")
    model.enable_input_require_grads()
    model.gradient_checkpointing_enable()
    return model.train()


MODELS = {
    "LoRA, GPT-2": lambda: adapted(hf.GPT2LMHeadModel(hf.GPT2Config(**GPT)), target_modules=["c_attn"], fan_in_fan_out=True),
    "LoRA, every linear layer": lambda: llama(target_modules="all-linear"),
    "DoRA": lambda: llama(target_modules="all-linear", use_dora=True),
    "rank-stabilized, with a trained head": lambda: llama(target_modules=["q_proj"], modules_to_save=["lm_head"], use_rslora=True),
    "gradient checkpointing": checkpointed,
}


def batch_of(seed):
    tokens = torch.randint(3, 90, (2, 8), generator=torch.Generator().manual_seed(seed))
    return {"input_ids": tokens, "labels": tokens}


class Adapters(support.Case):
    def test_gradients(self):
        for name, make in MODELS.items():
            with self.subTest(adapter=name):
                torch.manual_seed(1)
                theirs = make()
                mine = Module(copy.deepcopy(theirs))
                losses = [model(**batch_of(1))["loss"] for model in (mine, theirs)]
                for loss in losses:
                    loss.backward()
                self.assert_near(losses[0].detach(), losses[1].detach())
                self.assert_same_gradients(mine, theirs, 1e-4)
                self.assertTrue(any(p.grad is None for p in mine.parameters()), "frozen weights have no gradient")

    def test_train_step(self):
        torch.manual_seed(1)
        theirs = llama(target_modules="all-linear")
        model = copy.deepcopy(theirs)
        frozen = {name: p.detach().clone() for name, p in model.named_parameters() if not p.requires_grad}
        step = TrainStep(model, None, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2))
        optimizer = torch.optim.AdamW([p for p in theirs.parameters() if p.requires_grad], lr=1e-2)
        for seed in range(6):
            optimizer.zero_grad()
            loss = theirs(**batch_of(seed))["loss"]
            loss.backward()
            optimizer.step()
            self.assertAlmostEqual(float(step.step(**batch_of(seed))), float(loss.detach()), delta=2e-4)
        step.update_module()
        for (name, p), q in zip(model.named_parameters(), theirs.parameters()):
            if name in frozen:
                self.assertTrue(torch.equal(p, frozen[name]), name)
            else:
                self.assert_near(p.detach(), q.detach(), 1e-2)


if __name__ == "__main__":
    unittest.main()
