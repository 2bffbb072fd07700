"""The systems that docs/contributing/new-system.md shows are whole systems."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from docmt.core.errors import DocmtError
from docmt.decoding import SearchConfig, score_documents, translate_documents
from docmt.model import ModelConfig, TranslationModel
from docmt.text import SpecialTokens

PAGE = Path(__file__).parents[2] / "docs" / "contributing" / "new-system.md"
SPECIALS = SpecialTokens(30)
DOCUMENTS = [[[5, 6, 7], [8], [9, 10, 11, 12]], [[13, 14]], [[4, 5], [6, 7, 8, 9], [12]]]


def load_systems():
    """Return the classes that the page defines."""
    module = ModuleType("page")
    sys.modules["page"] = module  # where dataclasses look up the names of their types
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(code, str(PAGE), "exec"), vars(module))
    return module.SourceDocument, module.PreviousSource


SourceDocument, PreviousSource = load_systems()


def build(system, **options):
    class WithToy(ModelConfig):
        system_options = property(lambda self: system(**options))

    torch.manual_seed(1)
    sizes = {"width": 16, "feed_forward": 32, "heads": 2, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0}
    model = TranslationModel(WithToy(vocabulary_size=30, **sizes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


@pytest.mark.parametrize("system", [SourceDocument, PreviousSource])
def test_it_translates_and_scores_as_every_system(system):
    model = build(system)
    config = SearchConfig(beam=3, max_length_extra=3.0)
    together = translate_documents(model, DOCUMENTS, SPECIALS, config)
    for document, (translated, *_) in zip(DOCUMENTS, together, strict=True):
        alone = translate_documents(model, [document], SPECIALS, config)[0][0]
        assert translated.sentences == alone.sentences
        assert len(translated.sentences) == len(document)
        [scored] = score_documents(model, [document], [translated.sentences], SPECIALS, config)
        assert scored.sentence_scores == pytest.approx(translated.sentence_scores, abs=1e-4)


def test_it_sees_the_document_only_if_it_should():
    marked = [[SPECIALS.bos, *sentence, SPECIALS.eos] for sentence in DOCUMENTS[0]]
    changed = [*marked[:2], [SPECIALS.bos, 20, SPECIALS.eos]]
    for layers, same in ((0, True), (1, False)):
        model = build(SourceDocument, layers=layers)
        one, other = (model.logits([(source, marked)])[0][:5] for source in (marked, changed))
        assert torch.equal(one, other) == same


def test_the_decoder_sees_the_source_sentence_before():
    model, target = build(PreviousSource), DOCUMENTS[0]
    changed = [target[0], [20], target[2]]
    scores = [
        score_documents(model, [source], [target], SPECIALS, SearchConfig())[0].sentence_scores
        for source in (target, changed)
    ]
    assert [one == other for one, other in zip(*scores, strict=True)] == [True, False, False]


def test_it_refuses_what_it_does_not_have():
    with pytest.raises(DocmtError, match=r"model.source_document.layers is 3: choose from 0 to 2"):
        build(SourceDocument, layers=3)
