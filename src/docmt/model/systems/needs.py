"""What a system reads together, by which data and decoding cut documents."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Needs:
    """Which sentences a system reads together; instances are cut by it, in training and in translation alike."""

    sentences: int | None = None
    """most sentences of an instance; None: as many as the limits of the model allow"""
    before: int = 0
    """sentences of the source before the first one that is translated: they are read, not translated"""
    joined: bool = False
    """those before are read as one sequence, so that positions must reach through all of them"""
    windows: bool = False
    """an instance ends at every sentence, so that instances overlap; otherwise they lie end to end"""
    padding_windows: bool = False
    """with windows, in training: further, shorter ones at the end of each document"""
    shown: int = 0
    """sentences of the target before the first one that is translated: they are decoder input, too, without labels"""
    drafts: bool = False
    """a first translation of every sentence that is read, by a model of single sentences"""
    references: bool = False
    """in training also the true translation of every sentence that is read"""
