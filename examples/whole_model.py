"""A whole decoder made sparse: calibrated, reported, saved, loaded, and generating tokens.

A decoder of the shape of Llama gets random weights.  sparsify prunes all its linear layers but the head, by magnitudes
of weights times norms of their inputs (Wanda's rule), and says what became of each.  The model goes to a folder and
comes back; it generates tokens greedily, and a dense model with the same weights pruned must have the same scores for
them.  On a GPU a step is one CUDA graph, and tokens a second are compared with the dense model's.

Without a GPU the decoder is tiny, and the reference multiplies: its speed says nothing.  Needs torch and safetensors.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from _show import options

import sparsegen.torch as st
from sparsegen.bench.config import LLAMA_8B, TINY_LLAMA
from sparsegen.bench.decoder import Decoder, decoder
from sparsegen.bench.decoding import Decoding

PROMPT, SEED, DTYPE = 16, 1, torch.float16
#: |scores' - scores| / |scores| that the roundings of f16 may come to.
LARGEST_ERROR = 0.01


def generated(model: Decoder, prompts: Any, tokens: int, given: Any = None) -> tuple[Any, Any, float]:
    """What a model makes of prompts [batch, length]: tokens [tokens, batch, 1], those ``given`` or the likeliest, the
    scores [tokens, batch, vocab] that they were taken by, and seconds of a step."""
    decoding = Decoding(model, len(prompts), prompts.shape[1] + tokens)
    ids, scores = list[Any](), [decoding.prompt(prompts)]
    for at in range(tokens):
        if given is not None:
            decoding.ids.copy_(given[at])
        ids.append(decoding.ids.clone())
        scores.append(decoding.step().clone())
    last = float(scores[-1].sum())  # which waits for the GPU
    start = time.perf_counter()
    decoding.position.fill_(prompts.shape[1])
    for _ in range(tokens):
        last = decoding.step()
    float(last.sum())
    return torch.stack(ids), torch.stack(scores[:-1]), (time.perf_counter() - start) / tokens


def pruned(model: Decoder, sparse: Decoder) -> None:
    """Give a dense model the weights that a sparse one has left."""
    for name, layer in sparse.named_modules():
        if isinstance(layer, st.SparseLinear):
            model.get_submodule(name).weight.copy_(layer.to_dense())


@torch.no_grad()
def main(argv: Sequence[str] | None = None, sparsify: Callable[..., Any] = st.sparsify) -> int:
    """1 where the sparse model's scores are not those of the pruned dense one."""
    gpu = torch.cuda.is_available()
    args = options(__doc__, layers=8 if gpu else 2, batch=1, tokens=64 if gpu else 8).parse_args(argv)
    device = torch.device("cuda" if gpu else "cpu")
    config = replace(LLAMA_8B if gpu else TINY_LLAMA, layers=args.layers)
    draw = torch.Generator().manual_seed(SEED)
    prompts, *calibration = (
        torch.randint(config.vocab, (rows, PROMPT), generator=draw).to(device) for rows in (args.batch, 4, 4)
    )

    def fresh() -> Decoder:
        return decoder(config, device, DTYPE, SEED)

    model = fresh()
    dense_time = generated(model, prompts, args.tokens)[2]
    # the tiny layers are no faster sparse: they are made so all the same
    report = sparsify(model, calibration=calibration, tokens=(args.batch,), fallback="auto" if gpu else "never")
    print(f"{config.name}, {args.layers} layers\n\n{report}\n")

    with TemporaryDirectory() as folder:
        st.save(model, folder)
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
        loaded = fresh()
        st.load(loaded, folder)
    same = all(
        torch.equal(a, b) for a, b in zip(model.state_dict().values(), loaded.state_dict().values(), strict=True)
    )
    print(f"saved and loaded: {size / 1e6:.1f} MB, {'the same' if same else 'NOT the same'}")

    ids, scores, sparse_time = generated(loaded, prompts, args.tokens)
    del model
    dense = fresh()
    pruned(dense, loaded)
    _, exact, _ = generated(dense, prompts, args.tokens, ids)
    error = float((scores.float() - exact.float()).norm() / exact.float().norm())
    alike = float((exact.argmax(-1, keepdim=True) == ids).float().mean())
    print(f"{args.tokens} tokens from each of {args.batch} prompts; the first: {ids[:8, 0, 0].tolist()}")
    print(
        f"beside the dense model with these weights: scores are off by {error:.1e}, {alike:.0%} of the tokens are its"
    )
    if gpu:
        slow, fast = args.batch / dense_time, args.batch / sparse_time
        print(f"tokens a second: {slow:.0f} dense, {fast:.0f} sparse ({fast / slow:.2f} times)")
    if not (same and error <= LARGEST_ERROR):
        print("the sparse model is wrong")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
