"""Compute tests/data/hybrid_tiny/encoder.npz: random weights of the published encoder and its states.

It needs a checkout of the authors' code (github.com/Blickwinkel1107/making-the-most-of-context-nmt, commit 82f684f)
and PyTorch, 2.13 for the stored numbers: python tests/model/make_hybrid_fixture.py CHECKOUT
"""

import sys
from pathlib import Path

import numpy as np
import torch

FILE = Path(__file__).parents[1] / "data" / "hybrid_tiny" / "encoder.npz"
PAD, EOS, BOS, FIRST_WORD, VOCABULARY = 0, 1, 2, 4, 40
# The last document has sentences further apart than the 20 to which distances are clipped.
LENGTHS = [[3, 6, 1, 4], [2, 5, 3], [1, 2] * 11 + [1]]
SIZES = {"d_word_vec": 16, "d_model": 16, "d_inner_hid": 32, "n_head": 2, "n_layers": 2, "n_src_vocab": VOCABULARY}
SETTINGS = {
    "dim_per_head": None,
    "reset_encoder_position": True,
    "max_encoder_segment_embedding": 20,
    "encoder_attention_type": "normal",
    "global_encoder_attention_type": "segment-relative",
    "global_encoder_gate": True,
    "global_encoder_cat": False,
}


@torch.no_grad()
def build_encoder(checkout):
    """Their encoder with random weights, norms and distances included."""
    sys.path.insert(0, checkout)
    from src.models.D2D import Encoder
    from src.modules.position_embedding import SegmentEmbedding

    encoder = Encoder(dropout=0.0, **SIZES, **SETTINGS).eval()
    encoder.segment_embed = SegmentEmbedding(SIZES["d_model"], max(map(len, LENGTHS)))  # theirs ends at 20 sentences
    for name, weights in encoder.named_parameters():
        norm = "layer_norm.weight" in name
        torch.nn.init.normal_(weights, mean=float(norm), std=0.6 if "rel_seg" in name else 0.3)
        weights.copy_(weights.half())  # short numbers make a small file
    return encoder


def make_document(lengths):
    """Token ids, numbers of their sentences and positions in them."""
    sentences = [[BOS, *torch.randint(FIRST_WORD, VOCABULARY, (length,)).tolist(), EOS] for length in lengths]
    tokens = [token for sentence in sentences for token in sentence]
    numbers = [number for number, sentence in enumerate(sentences) for _ in sentence]
    positions = [position for sentence in sentences for position in range(len(sentence))]
    return torch.tensor(tokens), torch.tensor(numbers), torch.tensor(positions, dtype=torch.float32)


@torch.no_grad()
def main(checkout):
    torch.manual_seed(2020)
    encoder = build_encoder(checkout)
    below = []
    encoder.block_stack[-1].register_forward_hook(lambda block, inputs, output: below.append(output))
    documents = [make_document(lengths) for lengths in LENGTHS]
    arrays = {f"weights.{name}": weights.numpy() for name, weights in encoder.named_parameters()}
    for number, (tokens, numbers, positions) in enumerate(documents):
        states, _ = encoder(tokens[None], position=positions[None], segment_ids=numbers[None])
        arrays |= {f"tokens.{number}": tokens.numpy(), f"sentences.{number}": numbers.numpy()}
        arrays |= {f"below.{number}": below[-1][0].numpy(), f"states.{number}": states[0].numpy()}
    columns = (torch.nn.utils.rnn.pad_sequence(column, batch_first=True) for column in zip(*documents, strict=True))
    tokens, numbers, positions = columns
    batched, _ = encoder(tokens, position=positions, segment_ids=numbers)
    for number, (tokens, _, _) in enumerate(documents):
        alone = torch.from_numpy(arrays[f"states.{number}"])
        torch.testing.assert_close(batched[number, : len(tokens)], alone, atol=1e-5, rtol=0)
    np.savez_compressed(FILE, **arrays)
    print(f"{FILE}: {FILE.stat().st_size} bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
