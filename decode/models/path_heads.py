"""Heads that read their own draft: a layer on the target's states, applied again to what it made of them.

Row i joins the embedding of token i + 1 with what the target made of token i, attends to the rows before it, and gives
logits of token i + 2. A drafted token has a row of its own, in which the output of its parent's row stands for the
target's state. Verified tokens get rows from the target's states; those of drafts are dropped.

    mtp.*    of Qwen3-Next and Qwen3.5, in the model's own files
    a layer  more than the model has, of DeepSeek-V3, GLM-4.5 and others (DeepSeek-AI 2024, arXiv 2412.19437, section
             2.2); of several, the first is applied again, as engines do
    EAGLE-3  Li et al. 2025 (arXiv 2503.01840), on the states of several layers; in a folder of its own

docs/use/training-heads.md says which models have them, and what is done where engines differ.
"""

from __future__ import annotations

import copy
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from rescore import _core
from rescore.decode.models.causal_lm import FULL, CausalLMTarget
from rescore.decode.models.checkpoint import check_tensors, tensor_files
from rescore.decode.models.decoder_layers import DecoderLayers
from rescore.decode.models.draft_step import DraftStep, DraftVocabulary, places_of
from rescore.decode.models.heads_kind import mtp_prefix
from rescore.decode.models.slot_cache import CACHE, SlotCache, SlotLayers, attention_mask
from rescore.decode.models.target import Block
from rescore.lattice.checked import read_object
from rescore.lattice.extras import needed_for
from rescore.lattice.mapped import safetensors
from rescore.lattice.tree import TokenTree

with needed_for("heads of public models"):
    from transformers import AutoConfig

_LAYER = re.compile(r"layers\.(\d+)\.", re.ASCII)
_EXPERT = re.compile(r"(.*\.experts)\.(\d+)\.(gate|up|down)_proj\.weight", re.ASCII)
_FULL = "e_score_correction_bias"  # stays in float32
FIRST_SLOTS = 256


class PathHead(nn.Module, ABC):
    """What reads a row.

    vocabulary  the D tokens that have logits; None: all V
    rotary      gives the angles of positions
    attention   as transformers calls what computes it
    taps        the target's layers whose states it reads beside the last, as `CausalLMTarget.tap` takes them
    """

    vocabulary: DraftVocabulary | None = None
    taps: tuple[int, ...] = ()
    rotary: nn.Module
    attention: str

    @abstractmethod
    def embedded(self, ids: Tensor) -> Tensor:
        """Embeddings [.., H] of tokens."""

    def made_of(self, states: Tensor) -> Tensor:
        """What stands in a row for the target's states [.., W], with those of `taps` behind the last ones."""
        return states

    @abstractmethod
    def forward(self, embedded: Tensor, states: Tensor, **given: Any) -> Tensor:
        """The outputs of rows [R, L, H], to be fed back. given: what transformers' layers take beside their input."""

    @abstractmethod
    def logits(self, output: Tensor) -> Tensor:
        """Logits [.., D] of rows' outputs."""

    def open(self, requests: int) -> PathReader:
        return PathReader(self, requests)

    def read(self, block: Block, states: Tensor, cache: SlotCache) -> Tensor:
        """The outputs [R, L, H] of a block of rows; that of token i stands at position i - 1."""
        embedded = self.embedded(block.ids)
        return self(embedded, states, **beside(embedded, block, cache, self.rotary, self.attention))


def beside(x: Tensor, block: Block, cache: SlotCache, rotary: nn.Module, attention: str) -> dict[str, Any]:
    """What transformers' layers take beside their input x [R, L, H], to read a block behind what the cache has.

    rotary, attention: as in `PathHead`
    """
    cache.begin(block)
    positions = block.positions
    return {
        "attention_mask": attention_mask(block, attention, x.dtype),
        "position_ids": positions,
        "position_embeddings": rotary(x, positions),
        "use_cache": True,
        CACHE: SlotLayers(cache),
    }


class PathReader:
    """A head opened for the requests of one call, as `PathHeadsSession`.

    Its cache has the rows of all tokens whose states the target has given, behind them those of the latest tree.
    """

    def __init__(self, head: PathHead, requests: int):
        self._head, self._cache = head, SlotCache(requests, FIRST_SLOTS)
        self._states = UnreadStates(requests, self._cache)
        self._root: Tensor  # [B, H], outputs behind the texts
        self._outputs: list[dict[tuple[int, ...], Tensor]] = []  # of the nodes read, by their path from the root token

    def tell(self, step: DraftStep) -> None:
        self._states.tell(step)

    @torch.no_grad()
    def sync(self, step: DraftStep) -> Tensor:
        states, starts = self._states.take(step)
        unread = [history[1 + start :] for history, start in zip(step.histories, starts)]
        block = Block.of_texts(unread, starts, states.device)
        output = self._head.read(block, self._head.made_of(states), self._cache)
        self._root = output[torch.arange(len(unread), device=states.device), block.depths[:, -1]]
        self._outputs = [{(): row} for row in self._root]
        return self._head.logits(self._root)

    @torch.no_grad()
    def read_trees(self, trees: Sequence[TokenTree]) -> tuple[Tensor, list[TokenTree]]:
        known = [[path for path in _paths(tree) if path[:-1] in outputs] for tree, outputs in zip(trees, self._outputs)]
        places = [{path: place for place, path in enumerate(row)} for row in known]
        rows = [
            TokenTree.from_parents([path[-1] for path in row], [own.get(path[:-1], -1) for path in row])
            for row, own in zip(known, places)
        ]
        output = self._root[:, None]
        if any(known):
            block = self._block(rows)
            filler = torch.zeros_like(self._root[0])
            above = [[outputs[path[:-1]] for path in row] for row, outputs in zip(known, self._outputs)]
            states = torch.stack([torch.stack([*row, *[filler] * (block.width - len(row))]) for row in above])
            found = self._head.read(block, states, self._cache)
            for outputs, row, read in zip(self._outputs, known, found):
                outputs |= zip(row, read)
            output = torch.cat((output, found), dim=1)
        return self._head.logits(output), rows

    def _block(self, trees: Sequence[TokenTree]) -> Block:
        """The rows of trees' nodes, behind those of the texts."""
        width, starts = max(tree.size for tree in trees), self._states.read
        laid = _core.lay_trees([tree.columns for tree in trees], [0] * len(trees), 1 + width)  # root tokens in front
        ids, depths, seen = (torch.from_numpy(one) for one in laid)
        return Block(
            ids=ids[:, 1:],
            start=torch.tensor(starts),
            depths=(depths[:, 1:] - 1).clamp(min=0),
            ancestors=seen[:, 1:, 1:],
            end=max(starts) + width,
        ).to(self._root.device)


def _paths(tree: TokenTree) -> list[tuple[int, ...]]:
    """The tokens from the root to each node."""
    paths: list[tuple[int, ...]] = []
    for token, parent in zip(tree.tokens.tolist(), tree.parents.tolist()):
        paths.append((*paths[parent], token) if parent >= 0 else (token,))
    return paths


class MtpHead(PathHead):
    """One more layer of the target's kind, behind a linear map of embedding and state, both normed."""

    def __init__(self, target: CausalLMTarget, layer: nn.Module):
        super().__init__()
        norm: Any = type(DecoderLayers.of(target.model.get_decoder()).norm)
        width, eps = target.config.hidden_size, target.config.rms_norm_eps
        self.embedding_norm, self.hidden_norm, self.norm = (norm(width, eps=eps) for _ in range(3))
        self.join, self.layer = nn.Linear(2 * width, width, bias=False), layer
        self._target = (target,)  # in a tuple, so that its modules do not become submodules
        self.attention = target.config._attn_implementation

    @property
    def rotary(self) -> nn.Module:  # type: ignore[override]
        return self._target[0].model.get_decoder().rotary_emb

    def embedded(self, ids: Tensor) -> Tensor:
        return self._target[0].model.get_input_embeddings()(ids)

    def forward(self, embedded: Tensor, states: Tensor, **given: Any) -> Tensor:
        joined = self.join(torch.cat((self.embedding_norm(embedded), self.hidden_norm(states)), dim=-1))
        output = self.layer(joined, **given)
        return self.norm(output[0] if isinstance(output, tuple) else output)

    def logits(self, output: Tensor) -> Tensor:
        return self._target[0].logits(output)


class EagleHead(PathHead):
    """EAGLE-3's layers: the first attends over embedding and state side by side, the others as they are.

    form    its config.json's fields, of the plain form
    target  whose embeddings and output layer it shares where it has none
    """

    def __init__(self, target: CausalLMTarget, config: Any, form: Mapping[str, Any], names: Iterable[str]):
        super().__init__()
        from transformers.models.llama.modeling_llama import LlamaDecoderLayer
        from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer

        names, width = set(names), config.hidden_size
        kind = {"llama": LlamaDecoderLayer, "qwen3": Qwen3DecoderLayer}[config.model_type]
        config._attn_implementation = self.attention = target.config._attn_implementation
        self.taps = _taps(form, len(DecoderLayers.of(target.model.get_decoder()).layers))
        self.layers = nn.ModuleList(kind(config, number) for number in range(config.num_hidden_layers))
        attention: Any = self.layers[0].self_attn
        for name in ("q_proj", "k_proj", "v_proj"):
            plain = getattr(attention, name)
            setattr(attention, name, nn.Linear(2 * width, plain.out_features, bias=plain.bias is not None))
        norm: Any = type(self.layers[0].input_layernorm)
        wide = len(self.taps) * (form.get("target_hidden_size") or target.config.hidden_size)
        self.hidden_norm, self.norm = norm(width, eps=config.rms_norm_eps), norm(width, eps=config.rms_norm_eps)
        self.fc = nn.Linear(wide, width, bias="fc.bias" in names)
        self.input_norm = norm(wide, eps=config.rms_norm_eps) if "input_norm.weight" in names else None
        parts = [norm(wide // len(self.taps), eps=config.rms_norm_eps) for _ in self.taps]
        self.fc_norm = nn.ModuleList(parts) if "fc_norm.0.weight" in names else None
        drafted = form.get("draft_vocab_size") or target.vocab_size
        self.lm_head = nn.Linear(width, drafted, bias=False) if "lm_head.weight" in names else None
        self.embed_tokens = nn.Embedding(target.vocab_size, width) if "embed_tokens.weight" in names else None
        self._before_residual = bool(form.get("norm_before_residual", False))
        self._norm_output = bool(form.get("norm_output", False))
        self._target = (target,)

    def embedded(self, ids: Tensor) -> Tensor:
        return (self.embed_tokens or self._target[0].model.get_input_embeddings())(ids)

    def made_of(self, states: Tensor) -> Tensor:
        states = states[..., self._target[0].config.hidden_size :]
        if self.input_norm is not None:
            states = self.input_norm(states)
        if (norms := self.fc_norm) is not None:
            parts = states.chunk(len(self.taps), dim=-1)
            states = torch.cat([norm(part) for norm, part in zip(norms.children(), parts)], dim=-1)
        return self.fc(states)

    def forward(self, embedded: Tensor, states: Tensor, **given: Any) -> Tensor:
        first: Any = self.layers[0]
        normed = self.hidden_norm(states)
        both = torch.cat((first.input_layernorm(embedded), normed), dim=-1)
        x = (normed if self._before_residual else states) + first.self_attn(hidden_states=both, **given)[0]
        x = x + first.mlp(first.post_attention_layernorm(x))
        for layer in list(self.layers)[1:]:
            x = layer(x, **given)
        return self.norm(x) if self._norm_output else x

    def logits(self, output: Tensor) -> Tensor:
        normed = output if self._norm_output else self.norm(output)
        return self.lm_head(normed) if self.lm_head is not None else self._target[0].logits(normed)


def _taps(form: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    """The layers' states, by how many layers made them. Lists in `eagle_config` that begin with 1 count outputs."""
    name = "eagle_aux_hidden_state_layer_ids"
    ids: list[int] | None = form.get(name)
    if ids is None and (nested := (form.get("eagle_config") or {}).get(name)):
        ids = [one + 1 for one in nested] if nested[0] == 1 else nested
    return tuple(ids or (2, layers // 2, layers - 3))


def mtp_head(target: CausalLMTarget, folder: Path | None = None) -> MtpHead:
    """The head in a folder; None: that of the target's model. ValueError if there is none, or it is damaged."""
    folder = folder or Path(target.model.config.name_or_path)
    tensors = _mtp_tensors(folder) if folder.is_dir() else {}
    if not tensors:
        raise ValueError(
            f"{folder}: expected a folder whose safetensors hold a layer of multi-token prediction, got none"
        )
    with torch.device("meta"):
        heads = [MtpHead(target, layer) for layer in _layers_like(target)]
    if not heads:
        raise ValueError(f"{folder}: expected a model with self_attn in its layers, got {type(target.model).__name__}")
    fitting = [head for head in heads if head.state_dict().keys() == tensors.keys()]
    return loaded_head(folder, (fitting or heads)[0], tensors, target)


def _mtp_tensors(folder: Path) -> dict[str, Tensor]:
    """A head's tensors, by the names of `MtpHead`."""
    files = tensor_files(folder)
    if (prefix := mtp_prefix(files)) is None:
        return {}
    inside = {name: file for name, file in files.items() if name.startswith(prefix)}
    own = {name.removeprefix(prefix): one for name, one in read_all(inside).items()}
    renamed = {
        "fc.weight": "join.weight",
        "eh_proj.weight": "join.weight",
        "pre_fc_norm_embedding.weight": "embedding_norm.weight",
        "enorm.weight": "embedding_norm.weight",
        "pre_fc_norm_hidden.weight": "hidden_norm.weight",
        "hnorm.weight": "hidden_norm.weight",
        "norm.weight": "norm.weight",
        "shared_head.norm.weight": "norm.weight",
    }
    for copied in ("embed_tokens.weight", "shared_head.head.weight"):
        own.pop(copied, None)  # of the target
    return _stacked({renamed.get(name) or f"layer.{name.removeprefix('layers.0.')}": one for name, one in own.items()})


def _stacked(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """With the experts' matrices in one tensor, gates before what they gate, as transformers holds them."""
    experts: dict[str, dict[int, dict[str, Tensor]]] = {}
    for name in list(tensors):
        if match := _EXPERT.fullmatch(name):
            experts.setdefault(match[1], {}).setdefault(int(match[2]), {})[match[3]] = tensors.pop(name)
    for name, parts in experts.items():
        for number, own in enumerate(parts[one] for one in sorted(parts)):
            if number not in parts or own.keys() != {"gate", "up", "down"}:
                raise ValueError(f"{name}.{number}: expected gate_proj, up_proj and down_proj, got {sorted(own)}")
        ordered = [parts[one] for one in sorted(parts)]
        tensors[f"{name}.gate_up_proj"] = torch.stack([torch.cat((one["gate"], one["up"])) for one in ordered])
        tensors[f"{name}.down_proj"] = torch.stack([one["down"] for one in ordered])
    return tensors


def _layers_like(target: CausalLMTarget) -> Iterable[nn.Module]:
    """New layers of the kinds that the target has, those with full attention, the last kinds first."""
    config = copy.deepcopy(target.config)
    layers = DecoderLayers.of(target.model.get_decoder()).layers
    kinds = getattr(config, "layer_types", None) or [FULL] * len(layers)
    if hasattr(config, "first_k_dense_replace"):
        config.first_k_dense_replace = 0  # the layer behind the last is sparse, whatever the others are
    for number in reversed(range(len(layers))):
        if kinds[number] == FULL and hasattr(layers[number], "self_attn"):
            layer: Any = type(layers[number])(config, number)
            layer.self_attn.layer_idx = 0
            yield layer


def eagle_head(folder: Path, target: CausalLMTarget) -> EagleHead:
    """The EAGLE-3 head of a folder, whose target has its taps from now on. ValueError names what is missing, or not of
    this target.
    """
    path = folder / "config.json"
    form = read_object(path, lenient=True)
    if parallel := [name for name in ("mask_hidden", "mask_token_id") if name in form]:
        raise ValueError(f"{path}: expected EAGLE-3, got {parallel[0]!r} of another form, which cannot be read yet")
    tensors = {_eagle_name(name): one for name, one in read_all(tensor_files(folder)).items()}
    config = config_of(path, form, tensors, ("llama", "qwen3"))
    whole = {**(form.get("eagle_config") or {}), **form}
    return tapping_head(folder, lambda: EagleHead(target, config, whole, tensors), config, tensors, target)


def config_of(path: Path, form: Mapping[str, Any], tensors: Collection[str], kinds: Sequence[str]) -> Any:
    """The configuration of a head's layers, in its own form or that of speculators. ValueError if it is of another kind
    than these, or has other layers than the tensors.
    """
    own = dict(form.get("transformer_layer_config") or form)
    kind = own.pop("model_type", None) or kinds[0]
    if kind not in kinds:
        raise ValueError(f"{path}: model_type: expected {' or '.join(kinds)}, got {kind!r:.40}")
    if not tensors:
        raise ValueError(f"{path.parent}: expected tensors in safetensors beside config.json, got none")
    stored = len({match[1] for name in tensors if (match := _LAYER.match(name))})
    if own.get("num_hidden_layers") != stored:
        got = own.get("num_hidden_layers")
        raise ValueError(f"{path}: num_hidden_layers: expected {stored}, the layers of the tensors, got {got!r:.40}")
    for name in ("architectures", "eagle_config", "dflash_config", "dtype", "torch_dtype"):
        own.pop(name, None)
    return AutoConfig.for_model(kind, **own)


def vocabulary_of(folder: Path, offsets: Tensor, target: CausalLMTarget) -> DraftVocabulary:
    ids = torch.arange(len(offsets)) + offsets
    if offsets.dim() != 1 or len(ids) < 1 or (ids.diff() <= 0).any() or not 0 <= ids[0] <= ids[-1] < target.vocab_size:
        raise ValueError(f"{folder}: d2t: expected offsets to ascending ids below {target.vocab_size}, got others")
    return DraftVocabulary(ids=ids.to(torch.int32).to(target.device), size=target.vocab_size)


def _eagle_name(name: str) -> str:
    """Of `EagleHead`, from a name in either form."""
    name = name.removeprefix("model.")
    name = "layers.0." + name.removeprefix("midlayer.") if name.startswith("midlayer.") else name
    for number, old in enumerate(("low", "mid", "high")):
        name = name.replace(f"aux_norm_{old}.", f"fc_norm.{number}.")
    return "hidden_norm.weight" if name == "layers.0.hidden_norm.weight" else name


def read_all(files: Mapping[str, Path]) -> dict[str, Tensor]:
    """Tensors of these names; without `t2d`, which says what `d2t` does."""
    tensors: dict[str, Tensor] = {}
    for file in sorted(set(files.values())):
        with safetensors(file) as opened:
            tensors |= {name: opened.get_tensor(name) for name, own in files.items() if own == file and name != "t2d"}
    return tensors


def tapping_head(
    folder: Path, make: Callable[[], Any], config: Any, tensors: dict[str, Tensor], target: CausalLMTarget
) -> Any:
    """The head that `make` makes, loaded, with its angles and its draft vocabulary; the target has its taps from now
    on.
    """
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    offsets = tensors.pop("d2t", None)
    with torch.device("meta"):
        head = make()
    head.rotary = LlamaRotaryEmbedding(config)
    if offsets is not None:
        head.vocabulary = vocabulary_of(folder, offsets, target)
    loaded = loaded_head(folder, head, tensors, target)
    target.tap(head.taps)
    return loaded


def loaded_head(folder: Path, head: Any, tensors: Mapping[str, Tensor], target: CausalLMTarget) -> Any:
    """The head with these tensors, on the target's device and in its dtype. ValueError names one that does not fit."""
    depth = len(DecoderLayers.of(target.model.get_decoder()).layers)
    if wrong := [tap for tap in head.taps if not 1 <= tap <= depth]:
        raise ValueError(
            f"{folder / 'config.json'}: expected heads that read layers 1..{depth}, those of this model, got "
            f"{wrong[0]}; they were trained for another"
        )
    shapes = {name: tuple(one.shape) for name, one in head.state_dict().items()}
    if surplus := sorted(tensors.keys() - shapes.keys()):
        raise ValueError(f"{folder}: expected the tensors of a head of this model, got also {surplus[0]!r:.80}")
    check_tensors(folder, tensors, shapes)
    dtypes = {name: torch.float32 if name.endswith(_FULL) else target.model.dtype for name in tensors}
    head.load_state_dict({name: one.to(target.device, dtypes[name]) for name, one in tensors.items()}, assign=True)
    return head.to(target.device).eval()


class UnreadStates:
    """The target's states of the tokens that a head has no rows of yet, for the requests of one call.

    numbers  of the requests
    read     how many rows the head's cache has of each
    """

    def __init__(self, requests: int, cache: SlotCache):
        self.numbers, self.read = list(range(requests)), [0] * requests
        self._cache, self._told = cache, [list[Tensor]() for _ in range(requests)]

    def tell(self, step: DraftStep) -> None:
        """Adds those of a step, whose requests alone remain."""
        assert step.states is not None, "a step of decoding has hidden states"
        if (places := places_of(step.texts, self.numbers)) is not None:
            self._cache.select(places)
            self.numbers, self.read = [self.numbers[at] for at in places], [self.read[at] for at in places]
            self._told = [self._told[at] for at in places]
        for told, fresh in zip(self._told, step.states()):
            told.append(fresh)

    def take(self, step: DraftStep) -> tuple[Tensor, list[int]]:
        """States [R, L, W] of the tokens that have no rows yet, and how many had; they count as read from now on.
        ValueError unless all were told.
        """
        self.tell(step)
        fresh, starts = [torch.cat(told) for told in self._told], self.read
        self.read, self._told = [len(history) - 1 for history in step.histories], [[] for _ in fresh]
        for number, states, start, end in zip(self.numbers, fresh, starts, self.read):
            if len(states) != end - start or not len(states):
                raise ValueError(
                    f"request {number}: expected the hidden states of the {end - start} tokens read since the previous "
                    f"step, at least one, got {len(states)}"
                )
        return torch.nn.utils.rnn.pad_sequence(fresh, batch_first=True), starts
