"""Sizes of decoders: of models that papers measure, and of tiny ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True)
class Config:
    """Sizes of a decoder: ``family`` says what its layers are made of; OPT has learnt ``longest`` positions."""

    name: str
    family: Literal["llama", "opt"]
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    longest: int = 2048
    base: float = 500_000.0
    eps: float = 1e-5

    @property
    def d(self) -> int:
        """Features of a head."""
        return self.hidden // self.heads

    @property
    def repeats(self) -> int:
        """Heads of queries that share one head of keys and values."""
        return self.heads // self.kv_heads


OPT_13B: Final = Config("OPT-13B", "opt", 40, 5120, 40, 40, 20480, 50272)
LLAMA_8B: Final = Config("Llama-3-8B", "llama", 32, 4096, 32, 8, 14336, 128256)
TINY_OPT: Final = Config("tiny OPT", "opt", 2, 128, 4, 4, 512, 256)
TINY_LLAMA: Final = Config("tiny Llama", "llama", 2, 128, 4, 2, 384, 256)
