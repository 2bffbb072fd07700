"""Published evaluation protocols: what they set, and scores against tools that we did not write or by another way."""

import inspect
import json
import math
from collections import Counter

import pytest
import sacrebleu
import sacremoses
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from docmt.core.errors import DocmtError
from docmt.evaluation import PROTOCOLS, MetricConfig, evaluate_documents

REFERENCES = [
    ["The well-known bridge wasn't closed in May & June.", 'It\'s "open" again, since Monday.', "Nobody knows why."],
    ["She reads 3.5 books a week.", "He reads none at all!"],
]
HYPOTHESES = [
    ["The well-known bridge was not closed in May & June .", "it's “open” again, since monday.", "Who knows why."],
    ["She reads 3.5 books every week.", "He doesn't read at all!"],
]
INSTANCES = [[(0, 1), (1, 3)], [(0, 2)]]


def flat(documents):
    return [sentence for document in documents for sentence in document]


def joined(documents):
    return [" ".join(document) for document in documents]


def moses_tokens(documents, **options):
    """By the library alone."""
    normalize, tokenize = sacremoses.MosesPunctNormalizer("en").normalize, sacremoses.MosesTokenizer("en").tokenize
    return [[" ".join(tokenize(normalize(s), **options)) for s in document] for document in documents]


def multi_bleu(hypotheses, references, lowercase):
    """multi-bleu.perl with one reference: BLEU of the words between blanks, 0 where an n-gram never matches."""
    matched, total, lengths = [0] * 4, [0] * 4, [0, 0]
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        words = [(line.lower() if lowercase else line).split() for line in (hypothesis, reference)]
        for side in range(2):
            lengths[side] += len(words[side])
        for n in range(4):
            hypothesis_ngrams, reference_ngrams = (
                Counter(tuple(w[i : i + n + 1]) for i in range(len(w) - n)) for w in words
            )
            matched[n] += sum((hypothesis_ngrams & reference_ngrams).values())
            total[n] += sum(hypothesis_ngrams.values())
    if 0 in matched:
        return 0.0
    brevity = min(1.0, math.exp(1 - lengths[1] / lengths[0]))
    return 100 * brevity * math.exp(sum(math.log(m / t) for m, t in zip(matched, total, strict=True)) / 4)


def evaluate(protocol):
    config = MetricConfig(protocol=protocol, language="en")
    return evaluate_documents(HYPOTHESES, REFERENCES, config, INSTANCES)


def test_the_protocols():
    expected = {
        "gtransformer": ("instance", "detokenized", "13a", False),
        "zhang2018": ("document", "tokenized", "none", True),
        "multihop": ("document", "tokenized", "none", False),
        "rfa": ("document", "tokenized-hyphens", "13a", False),
    }
    for name in PROTOCOLS:
        config = MetricConfig(protocol=name, language="de")
        assert (config.unit, config.text, config.tokenize, config.lowercase) == expected[name]
    assert expected.keys() == PROTOCOLS.keys()
    usual = MetricConfig()
    assert (usual.unit, usual.text, usual.tokenize, usual.lowercase) == ("document", "plain", "13a", False)
    assert all(name in inspect.getsource(MetricConfig) for name in PROTOCOLS), "the help lists all"


def test_zhang2018_is_multi_bleu_in_lower_case():
    result = evaluate("zhang2018")
    lines = [flat(moses_tokens(side)) for side in (HYPOTHESES, REFERENCES)]
    assert result.s_bleu.score == pytest.approx(multi_bleu(*lines, lowercase=True), abs=1e-9)
    assert result.s_bleu.score > evaluate("multihop").s_bleu.score
    assert "case:lc" in result.s_bleu.signature


def test_multihop_is_multi_bleu():
    result = evaluate("multihop")
    lines = [flat(moses_tokens(side)) for side in (HYPOTHESES, REFERENCES)]
    assert result.s_bleu.score == pytest.approx(multi_bleu(*lines, lowercase=False), abs=1e-9)
    assert result.s_bleu.score > 20


def test_rfa_is_13a_before_none_over_documents():
    result = evaluate("rfa")
    tokens = [joined(moses_tokens(side, aggressive_dash_splits=True)) for side in (HYPOTHESES, REFERENCES)]
    assert "@-@" in tokens[0][0] and "&apos;" in tokens[0][0]
    again = [[Tokenizer13a()(text) for text in side] for side in tokens]
    assert result.d_bleu.score == sacrebleu.corpus_bleu(again[0], [again[1]], tokenize="none", force=True).score
    assert result.d_bleu.segments == 2
    assert result.d_bleu.score != evaluate_documents(HYPOTHESES, REFERENCES).d_bleu.score


def test_gtransformer_is_detokenized_text_over_instances():
    result = evaluate("gtransformer")
    detokenize = sacremoses.MosesDetokenizer("en").detokenize
    text = [[[detokenize(s.split()) for s in d] for d in moses_tokens(side)] for side in (HYPOTHESES, REFERENCES)]
    assert text[0][0][0].endswith("June.") and '"open"' in text[0][0][1]
    units = [[d[0][0], " ".join(d[0][1:]), " ".join(d[1])] for d in text]
    assert result.d_bleu.score == sacrebleu.corpus_bleu(units[0], [units[1]]).score
    assert result.s_bleu.score == sacrebleu.corpus_bleu(flat(text[0]), [flat(text[1])]).score
    assert result.s_bleu.score > evaluate_documents(HYPOTHESES, REFERENCES).s_bleu.score
    assert result.d_bleu.segments == 3


@pytest.mark.parametrize("name", PROTOCOLS)
def test_signatures_say_the_text_and_chrf_takes_it_as_it_is(name):
    result, plain = evaluate(name), evaluate_documents(HYPOTHESES, REFERENCES)
    text = f"text:{PROTOCOLS[name].settings['text']}.en.sacremoses-{sacremoses.__version__}"
    assert text in result.s_bleu.signature.split("|") and text in result.d_bleu.signature.split("|")
    assert f"tok:{PROTOCOLS[name].settings['tokenize']}|" in result.s_bleu.signature
    assert f"unit:{PROTOCOLS[name].settings['unit']}|" in result.d_bleu.signature
    assert "text:" not in result.chrf.signature + plain.s_bleu.signature + plain.d_bleu.signature
    if name != "zhang2018":
        assert result.chrf == plain.chrf
    assert result.format().splitlines()[5].startswith(f"protocol {name} ({PROTOCOLS[name].paper}; ")
    assert "protocol" not in plain.format()
    data = json.loads(json.dumps(result.to_json()))
    assert (data["protocol"], data["language"]) == (name, "en")
    assert {key: data[key] for key in PROTOCOLS[name].settings} == PROTOCOLS[name].settings


def test_further_references_are_converted_too():
    config = MetricConfig(text="tokenized", tokenize="none", language="en")
    other = [[s.replace("again", "now") for s in document] for document in REFERENCES]
    result = evaluate_documents(HYPOTHESES, REFERENCES, config, more_references=[other])
    sides = [flat(moses_tokens(side)) for side in (HYPOTHESES, REFERENCES, other)]
    assert result.s_bleu.score == sacrebleu.corpus_bleu(sides[0], sides[1:], tokenize="none", force=True).score


def test_a_setting_may_be_repeated_but_not_contradicted():
    same = MetricConfig(protocol="rfa", unit="document", tokenize="13a", language="de")
    assert same == MetricConfig(protocol="rfa", language="de")
    for setting, message in (
        ({"unit": "instance"}, r"metrics.unit is instance but protocol rfa sets it to document. Leave one of them out"),
        ({"text": "plain"}, r"metrics.text is plain but protocol rfa sets it to tokenized-hyphens"),
        ({"tokenize": "none"}, r"metrics.tokenize is none but protocol rfa sets it to 13a"),
        ({"lowercase": True}, r"metrics.lowercase is true but protocol rfa sets it to false"),
    ):
        with pytest.raises(DocmtError, match=message):
            MetricConfig(protocol="rfa", language="de", **setting)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"protocol": "han"}, r"protocol is 'han': choose one of gtransformer, zhang2018, multihop, rfa$"),
        ({"text": "bpe"}, r"text is 'bpe': choose one of plain, detokenized, tokenized, tokenized-hyphens$"),
        ({"protocol": "rfa"}, r"^metrics.protocol rfa needs metrics.language"),
        ({"text": "tokenized"}, r"^metrics.text tokenized needs metrics.language"),
        ({"text": "tokenized", "language": "german"}, r"^metrics.language 'german' is not the code of a language"),
    ],
)
def test_settings_that_do_not_fit(settings, message):
    with pytest.raises(DocmtError, match=message):
        MetricConfig(**settings)
