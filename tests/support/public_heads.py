"""Tiny heads in the forms that public models ship, and their forwards, written from the descriptions of these forms:
every row anew, without a cache. transformers' own layers stand for a family's.
"""

import copy
import json

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from support.generating import assert_a_chat_continues, ragged
from support.tiny_transformers import V, build, randomised

from rescore import Drafting
from rescore.decode.models.model_check import is_recurrent

WIDTH, EPS = 32, 1e-6
_NEXT = dict(
    vocab_size=V, hidden_size=WIDTH, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, head_dim=8,
    num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2, linear_num_value_heads=4,
    linear_key_head_dim=8, linear_value_head_dim=8,
)  # fmt: skip
_MOE = dict(moe_intermediate_size=16, num_experts=4, num_experts_per_tok=2, shared_expert_intermediate_size=16)


def noise(shape, seed: int, around: float = 0.0) -> torch.Tensor:
    return around + (0.1 if len(shape) == 1 else 0.2) * torch.randn(
        shape, generator=torch.Generator().manual_seed(seed)
    )


def causal(rows: int) -> torch.Tensor:
    return torch.full((rows, rows), -torch.inf).triu(1)[None, None]


def normed(x: torch.Tensor, weight: torch.Tensor, eps: float = EPS) -> torch.Tensor:
    return weight * x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt()


def turned(x: torch.Tensor, positions: torch.Tensor, theta: float) -> torch.Tensor:
    """Rotary embedding of [heads, n, size]."""
    size = x.shape[-1]
    angle = positions[:, None] * theta ** (-torch.arange(0, size, 2) / size)
    left, right = x.chunk(2, dim=-1)
    cos, sin = angle.cos(), angle.sin()
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1)


def target_of(name: str):
    if name == "qwen3-next":
        config = transformers.Qwen3NextConfig(**_NEXT, **_MOE)
    elif name == "qwen3.5":
        config = transformers.Qwen3_5TextConfig(**_NEXT, mtp_num_hidden_layers=1)
    else:
        return build(name)
    torch.manual_seed(0)
    return randomised(transformers.AutoModelForCausalLM.from_config(config)).eval()


class Mtp:
    """The forms inside a model's files: `mtp.*`, or the layer behind the last."""

    def __init__(self, folder, name: str, *, fused: bool = False):
        self.model, self.inside = target_of(name), name.startswith("qwen")
        self.taps: tuple[int, ...] = ()
        config = copy.deepcopy(self.model.config)
        if hasattr(config, "first_k_dense_replace"):
            config.first_k_dense_replace = 0
        self.layer = randomised(type(self.model.model.layers[-1])(config, 1)).eval()
        self.layer.load_state_dict({key: one + noise(one.shape, 3) for key, one in self.layer.state_dict().items()})
        self.layer.self_attn.layer_idx = 0
        about = 0.0 if self.inside else 1.0
        self.norms = [noise((WIDTH,), seed, about) for seed in (11, 12, 13)]
        self.join = noise((WIDTH, 2 * WIDTH), 14)
        self.model.save_pretrained(folder)
        file = folder / "model.safetensors"
        save_file({**load_file(file), **self.published(fused)}, file, {"format": "pt"})

    def published(self, fused: bool) -> dict[str, torch.Tensor]:
        names = ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", "fc")
        prefix, own = "mtp.", "mtp.layers.0."
        if not self.inside:
            names, prefix, own = ("enorm", "hnorm", "shared_head.norm", "eh_proj"), "model.layers.2.", "model.layers.2."
        found = {f"{prefix}{name}.weight": one for name, one in zip(names, (*self.norms, self.join))}
        if not self.inside:  # copies that some folders have
            found["model.layers.2.embed_tokens.weight"] = self.model.get_input_embeddings().weight.clone()
            found["model.layers.2.shared_head.head.weight"] = self.model.lm_head.weight.clone()
        for key, one in self.layer.state_dict().items():
            if fused or ".experts." not in key:
                found[own + key] = one.clone()
                continue
            head, which = key.rsplit(".", 1)
            for expert, weights in enumerate(one):
                parts = ("gate_proj", "up_proj") if which == "gate_up_proj" else ("down_proj",)
                for part, piece in zip(parts, weights.chunk(len(parts))):
                    found[f"{own}{head}.{expert}.{part}.weight"] = piece.clone()
        return found

    def made_of(self, states: torch.Tensor) -> torch.Tensor:
        return states

    def rows(self, ids: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Outputs [n, H] of rows of tokens [n] and what the target or the head made of those before them [n, H]."""
        embedding, hidden, out = (self.inside + one for one in self.norms)
        embedded = self.model.get_input_embeddings()(ids)
        eps = self.model.config.rms_norm_eps
        x = torch.cat((normed(embedded, embedding, eps), normed(states, hidden, eps)), dim=-1) @ self.join.T
        positions = torch.arange(len(ids))[None]
        angles = self.model.model.rotary_emb(x[None], positions)
        y = self.layer(x[None], attention_mask=causal(len(ids)), position_ids=positions, position_embeddings=angles)
        return normed((y[0] if isinstance(y, tuple) else y)[0], out, eps)

    def logits(self, output: torch.Tensor) -> torch.Tensor:
        return self.model.lm_head(output)


class Eagle3:
    """EAGLE-3, in a folder of its own: one layer, its attention written out."""

    KEPT = [3, 4, 7, 8, 9, 12, 15, 16, 20, 21, 22, 25, 30, 33, 36]  # target ids of the draft vocabulary
    HEADS, KEYS, SIZE = 4, 2, 12

    def __init__(self, folder, *, speculators: bool = False, own_embeddings: bool = True):
        self.model = build("llama", num_hidden_layers=8)
        self.taps, self.before_residual = ((1, 4, 6), True) if speculators else ((2, 4, 5), False)
        q, kv, wide = self.HEADS * self.SIZE, self.KEYS * self.SIZE, 2 * WIDTH
        shapes = {
            "fc.weight": (WIDTH, 3 * WIDTH), "norm.weight": (WIDTH,), "lm_head.weight": (len(self.KEPT), WIDTH),
            "midlayer.input_layernorm.weight": (WIDTH,), "midlayer.hidden_norm.weight": (WIDTH,),
            "midlayer.post_attention_layernorm.weight": (WIDTH,), "midlayer.self_attn.q_proj.weight": (q, wide),
            "midlayer.self_attn.k_proj.weight": (kv, wide), "midlayer.self_attn.v_proj.weight": (kv, wide),
            "midlayer.self_attn.o_proj.weight": (WIDTH, q), "midlayer.mlp.gate_proj.weight": (48, WIDTH),
            "midlayer.mlp.up_proj.weight": (48, WIDTH), "midlayer.mlp.down_proj.weight": (WIDTH, 48),
        }  # fmt: skip
        self.w = {name: noise(shape, 20 + i, float(len(shape) == 1)) for i, (name, shape) in enumerate(shapes.items())}
        stored = {key.replace("midlayer.", "layers.0.") if speculators else key: one for key, one in self.w.items()}
        kept = torch.tensor(self.KEPT)
        stored |= {"d2t": kept - torch.arange(len(kept)), "t2d": torch.isin(torch.arange(V), kept)}
        self.embedding = self.model.get_input_embeddings().weight
        if own_embeddings:
            self.embedding = stored["embed_tokens.weight"] = noise((V, WIDTH), 9)
        layer = dict(
            hidden_size=WIDTH, intermediate_size=48, num_attention_heads=self.HEADS, num_key_value_heads=self.KEYS,
            num_hidden_layers=1, head_dim=self.SIZE, rms_norm_eps=EPS, vocab_size=V, max_position_embeddings=2048,
            hidden_act="silu", rope_theta=500.0, attention_bias=False, tie_word_embeddings=False,
        )  # fmt: skip
        more = {"draft_vocab_size": len(kept)}
        plain = {"architectures": ["LlamaForCausalLM"], **layer, **more}
        nested = {
            "speculators_model_type": "eagle3",
            "transformer_layer_config": {"model_type": "llama", **layer},
            **more,
        }
        nested |= {"norm_before_residual": True, "eagle_aux_hidden_state_layer_ids": list(self.taps)}
        (folder / "config.json").write_text(json.dumps(nested if speculators else plain))
        save_file(stored, folder / "model.safetensors")

    def made_of(self, states: torch.Tensor) -> torch.Tensor:
        return states @ self.w["fc.weight"].T

    def rows(self, ids: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        w, n = {key.removeprefix("midlayer."): one for key, one in self.w.items()}, len(ids)
        e, q = normed(self.embedding[ids], w["input_layernorm.weight"]), normed(states, w["hidden_norm.weight"])
        x = torch.cat((e, q), dim=-1)
        heads = {
            name: (x @ w[f"self_attn.{name}_proj.weight"].T).view(n, -1, self.SIZE).transpose(0, 1) for name in "qkv"
        }
        for name in "qk":
            heads[name] = turned(heads[name], torch.arange(n), 500.0)
        keys, values = (heads[name].repeat_interleave(self.HEADS // self.KEYS, dim=0) for name in "kv")
        scores = heads["q"] @ keys.transpose(1, 2) / self.SIZE**0.5 + causal(n)[0]
        attended = (scores.softmax(-1) @ values).transpose(0, 1).reshape(n, -1) @ w["self_attn.o_proj.weight"].T
        a = (q if self.before_residual else states) + attended
        p = normed(a, w["post_attention_layernorm.weight"])
        gate, up = p @ w["mlp.gate_proj.weight"].T, p @ w["mlp.up_proj.weight"].T
        return a + (torch.nn.functional.silu(gate) * up) @ w["mlp.down_proj.weight"].T

    def logits(self, output: torch.Tensor) -> torch.Tensor:
        """Over all V ids."""
        found = torch.full((*output.shape[:-1], V), -torch.inf)
        found[..., self.KEPT] = normed(output, self.w["norm.weight"]) @ self.w["lm_head.weight"].T
        return found


class DFlash:
    """DFlash, in a folder of its own: two layers, written out."""

    HEADS, KEYS, SIZE, BLOCK, MASK, KEPT = 4, 2, 12, 5, 2, Eagle3.KEPT

    def __init__(self, folder, *, speculators: bool = False):
        self.model, self.taps, self.anchor = build("llama", num_hidden_layers=8), (2, 4, 7), speculators
        q, kv = self.HEADS * self.SIZE, self.KEYS * self.SIZE
        layer = {
            "input_layernorm.weight": (WIDTH,), "post_attention_layernorm.weight": (WIDTH,),
            "self_attn.q_proj.weight": (q, WIDTH), "self_attn.k_proj.weight": (kv, WIDTH),
            "self_attn.v_proj.weight": (kv, WIDTH), "self_attn.o_proj.weight": (WIDTH, q),
            "self_attn.q_norm.weight": (self.SIZE,), "self_attn.k_norm.weight": (self.SIZE,),
            "mlp.gate_proj.weight": (48, WIDTH), "mlp.up_proj.weight": (48, WIDTH), "mlp.down_proj.weight": (WIDTH, 48),
        }  # fmt: skip
        shapes = {f"layers.{i}.{name}": shape for i in range(2) for name, shape in layer.items()}
        shapes |= {"fc.weight": (WIDTH, 3 * WIDTH), "hidden_norm.weight": (WIDTH,), "norm.weight": (WIDTH,)}
        self.w = {name: noise(shape, 50 + i, float(len(shape) == 1)) for i, (name, shape) in enumerate(shapes.items())}
        self.table, self.kept = self.model.lm_head.weight, list(range(V))
        self.embedding = self.model.get_input_embeddings().weight
        own = dict(
            hidden_size=WIDTH, intermediate_size=48, num_attention_heads=self.HEADS, num_key_value_heads=self.KEYS,
            num_hidden_layers=2, head_dim=self.SIZE, rms_norm_eps=EPS, vocab_size=V, max_position_embeddings=64,
            hidden_act="silu", rope_theta=700.0, attention_bias=False, tie_word_embeddings=False, model_type="qwen3",
        )  # fmt: skip
        stored, config = dict(self.w), {"architectures": ["DFlashDraftModel"], **own, "block_size": self.BLOCK}
        config["dflash_config"] = {"mask_token_id": self.MASK, "target_layer_ids": [tap - 1 for tap in self.taps]}
        if speculators:
            self.kept, kept = self.KEPT, torch.tensor(self.KEPT)
            self.table = stored["lm_head.weight"] = noise((len(kept), WIDTH), 41)
            self.embedding = stored["embed_tokens.weight"] = noise((V, WIDTH), 42)
            stored |= {"d2t": kept - torch.arange(len(kept)), "t2d": torch.isin(torch.arange(V), kept)}
            config = {"speculators_model_type": "dflash", "transformer_layer_config": own, "block_size": self.BLOCK}
            config |= {"mask_token_id": self.MASK, "aux_hidden_state_layer_ids": list(self.taps)}
            config |= {"sample_from_anchor": True, "draft_vocab_size": len(kept)}
        (folder / "config.json").write_text(json.dumps(config))
        save_file(stored, folder / "model.safetensors")

    def logits(self, anchor: int, states: torch.Tensor) -> torch.Tensor:
        """Logits [T, V] of a draft behind a token, from what the target made of those before it [n, f H]."""
        context = normed(states @ self.w["fc.weight"].T, self.w["hidden_norm.weight"])
        x, n = self.embedding[[anchor, *[self.MASK] * (self.BLOCK - 1)]], len(states)
        for number in range(2):
            w = {name.removeprefix(f"layers.{number}."): one for name, one in self.w.items()}
            e = normed(x, w["input_layernorm.weight"])
            both, places = torch.cat((context, e)), torch.arange(n + self.BLOCK)

            def heads(y, name, places=None, w=w):
                found = (y @ w[f"self_attn.{name}_proj.weight"].T).view(len(y), -1, self.SIZE).transpose(0, 1)
                if places is None:
                    return found
                return turned(normed(found, w[f"self_attn.{name}_norm.weight"]), places, 700.0)

            queries, keys, values = heads(e, "q", places[n:]), heads(both, "k", places), heads(both, "v")
            keys, values = (one.repeat_interleave(self.HEADS // self.KEYS, dim=0) for one in (keys, values))
            weights = (queries @ keys.transpose(1, 2) / self.SIZE**0.5).softmax(-1)
            x = x + (weights @ values).transpose(0, 1).reshape(self.BLOCK, -1) @ w["self_attn.o_proj.weight"].T
            p = normed(x, w["post_attention_layernorm.weight"])
            gate, up = p @ w["mlp.gate_proj.weight"].T, p @ w["mlp.up_proj.weight"].T
            x = x + (torch.nn.functional.silu(gate) * up) @ w["mlp.down_proj.weight"].T
        found = torch.full((self.BLOCK, V), -torch.inf)
        found[:, self.kept] = normed(x, self.w["norm.weight"]) @ self.table.T
        return found if self.anchor else found[1:]


def assert_generate_takes(form, folder) -> None:
    """Drafts of a head in a folder give the text of `generate`, and go on over a cache of attention layers."""
    ids = torch.from_numpy(np.random.default_rng(3).integers(3, V, (2, 7)))
    asked = dict(max_new_tokens=16, do_sample=False, attention_mask=torch.ones_like(ids))
    drafting = Drafting(folder, nodes=6)
    found = form.model.generate(ids, custom_generate=drafting, **asked)
    assert found.tolist() == form.model.generate(ids, **asked).tolist()
    assert all(sum(one.drafted) > 0 for one in drafting.statistics)
    if not is_recurrent(form.model.config):
        assert_a_chat_continues(form.model, ragged(6, 3), lambda *_: drafting)
