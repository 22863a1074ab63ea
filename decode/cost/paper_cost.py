"""Table 11 of the paper, by the paper's own counts (blockwise-parallel-drafts.txt, appendix I.1).

The paper prints the table without its formulas. The formulas below reproduce every printed digit from the paper's
inputs (table 6, the block efficiencies of table 11, h = 9, p = 16); docs/notebooks/heads.md derives them. Two of them
differ from what a pass really moves and computes, which is in `cost_model`:

- the cache holds `hidden` numbers per layer, key and value, instead of the attention's `width`: 8 times too many;
- operations recompute attention over the whole text of 2048 tokens in every pass, quadratic in its length, and omit the
  products of the additional tokens of a pass.
"""

from __future__ import annotations

from dataclasses import dataclass

from rescore.decode.cost.cost_tables import LENGTHS

FLOPS_LENGTH = 2048  # the table names no length; only the training length explains its row
BYTES = 2  # bfloat16
BLOCK = 9  # h
PATHS = 16  # p


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperModel:
    """A row of the paper's table 6."""

    parameters: float
    layers: int
    width: int
    hidden: int


TARGET = PaperModel(parameters=1.5e9, layers=18, width=1536, hidden=12288)
NEURAL_61M = PaperModel(parameters=61e6, layers=12, width=384, hidden=1536)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperColumn:
    """One method of table 11: name, mean block efficiency, tokens that a pass adds to the cache, models read."""

    name: str
    block_efficiency: float
    added: int
    models: tuple[PaperModel, ...] = (TARGET,)

    @property
    def parameter_gb(self) -> float:
        """Gigabytes (1e9) of parameters read per decoded token."""
        return BYTES * sum(model.parameters for model in self.models) / self.block_efficiency / 1e9

    def cache_gb(self, length: int) -> float:
        """Returns gigabytes of keys and values per decoded token: the text's, once for any p, and the drafts'."""
        numbers = sum(2 * model.layers * model.hidden for model in self.models)
        return BYTES * numbers * (length + self.added) / self.block_efficiency / 1e9

    @property
    def tera_flops(self) -> float:
        """Operations per decoded token, in 1e12."""
        tokens = FLOPS_LENGTH + self.added
        flops = sum(2 * model.parameters + 8 * model.layers * model.width * tokens**2 for model in self.models)
        return flops / self.block_efficiency / 1e12


TABLE_11 = (
    PaperColumn(name="autoregressive", block_efficiency=1.000, added=0),
    PaperColumn(name="base", block_efficiency=1.646, added=BLOCK),
    PaperColumn(name="4-gram", block_efficiency=1.657, added=BLOCK),
    PaperColumn(name="neural-61M", block_efficiency=1.724, added=BLOCK, models=(TARGET, NEURAL_61M)),
    PaperColumn(name="parallel base", block_efficiency=1.717, added=PATHS * BLOCK),
    PaperColumn(name="parallel 4-gram", block_efficiency=1.797, added=PATHS * BLOCK),
)

# The rows that the paper prints, columns in the order of TABLE_11.
PRINTED: dict[str, tuple[str, ...]] = {
    "Parameter I/O (GB)": ("3.000", "1.823", "1.811", "1.811", "1.747", "1.669"),
    "KV Cache I/O (GB), 128": ("0.113", "0.074", "0.073", "0.076", "0.140", "0.134"),
    "KV Cache I/O (GB), 512": ("0.453", "0.280", "0.278", "0.290", "0.338", "0.323"),
    "KV Cache I/O (GB), 1024": ("0.906", "0.555", "0.552", "0.574", "0.602", "0.575"),
    "KV Cache I/O (GB), 2048": ("1.812", "1.106", "1.098", "1.144", "1.129", "1.079"),
    "FLOPS (T)": ("0.931", "0.57", "0.567", "0.635", "0.621", "0.593"),
}


def table_11() -> dict[str, tuple[float, ...]]:
    """Computes the rows of PRINTED."""
    return {
        "Parameter I/O (GB)": tuple(column.parameter_gb for column in TABLE_11),
        **{f"KV Cache I/O (GB), {length}": tuple(column.cache_gb(length) for column in TABLE_11) for length in LENGTHS},
        "FLOPS (T)": tuple(column.tera_flops for column in TABLE_11),
    }
