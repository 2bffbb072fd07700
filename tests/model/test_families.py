"""Families of checkpoints: what a model of one may be, and how its sentences are marked."""

import pytest

from docmt.core.errors import DocmtError
from docmt.model import ModelConfig
from docmt.model.families import FAMILIES
from docmt.model.scope import BoundaryTokens


def test_frames_by_hand():
    language_tokens = {"SOURCE": [7], "TARGET": [8, 9]}
    tokens = BoundaryTokens.parse("w </s> SOURCE", "</s> TARGET w </s>", language_tokens)
    assert (tokens.source_opening, tokens.source_closing) == ((), (2, 7))
    assert (tokens.target_opening, tokens.target_has_end, tokens.predicts_boundary) == ((2, 8, 9), True, False)
    assert (tokens.counts("source"), tokens.counts("target"), tokens.max_per_sentence) == ((0, 2), (3, 1), 4)
    assert not tokens.target_starts_with_bos
    assert FAMILIES["docmt"].boundary_tokens(ModelConfig()) == BoundaryTokens()
    thumt = FAMILIES["thumt"].boundary_tokens(ModelConfig())
    assert (thumt.source_opening, thumt.target_opening, thumt.target_has_end) == ((), (0,), False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"source_language_ids": [5]},
            r"model\.source_language_ids is set, but model\.family docmt has no token for it",
        ),
        ({"family": "marian", "source_language_ids": [5]}, "source_language_ids is set, but"),
        ({"family": "bart", "target_language_ids": [5]}, "target_language_ids is set, but"),
        ({"family": "mbart", "target_language_ids": [-1]}, r"model\.target_language_ids is -1: choose a number from 0"),
        (
            {"family": "mbart", "source_vocabulary_size": 9},
            "source_vocabulary_size is only for model.family thumt, rfa, marian",
        ),
        ({"family": "marian", "system": "document"}, "is for systems with one target sentence per source sentence"),
        ({"family": "marain"}, r"model\.family is 'marain': choose one of docmt"),
        ({"relative_buckets": 8}, r"model\.relative_buckets has no effect without model\.position_encoding relative"),
        ({"position_encoding": "relative", "relative_distance": 16}, r"relative_distance is 16: choose more than half"),
        ({"activation": "swish"}, r"model\.activation is 'swish': choose one of relu, gelu"),
        ({"output": "other"}, r"model\.output is 'other': choose one of auto, tied"),
        ({"encoder_heads": 4}, "encoder_heads is only for model.family bert, roberta: leave it out"),
        (
            {"family": "bert", "encoder_width": 24, "encoder_heads": 5},
            r"encoder_width is 24: choose a multiple of .* .5",
        ),
        ({"family": "bert", "encoder_heads": 7}, r"encoder_width is 512: choose a multiple of .*encoder_heads .7"),
        ({"family": "roberta", "system": "multihop"}, "cannot encode target text, but this multihop model reads"),
        ({"head_width": -1}, r"model\.head_width is -1: choose a number from 0"),
    ],
)
def test_what_a_family_does_not_have_is_refused(options, message):
    with pytest.raises(DocmtError, match=message):
        ModelConfig(**options)
