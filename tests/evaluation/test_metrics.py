"""Scores are sacreBLEU's own to the last digit; what is ours is the choice of segments and the refusals."""

import json
import math
import re
from functools import partial

import numpy as np
import pytest
import sacrebleu
from sacrebleu.metrics import BLEU

from docmt.core.errors import DocmtError
from docmt.evaluation.metrics import MetricConfig, compute_bleu, evaluate_documents

REFERENCES = [
    ["The old bridge was closed in May .", "It's open again, since Monday.", "Nobody knows why."],
    ["She reads 3.5 books a week.", "He reads none at all!"],
]
HYPOTHESES = [
    ["The old bridge was shut in May.", "it's open again since Monday.", ""],
    ["She reads 3.5 books every week.", "He does not read at all!"],
]
INSTANCES = [[(0, 1), (1, 3)], [(0, 2)]]
SETTINGS = [
    {"tokenize": "13a", "lowercase": False},
    {"tokenize": "13a", "lowercase": True},
    {"tokenize": "none", "lowercase": False},
    {"tokenize": "none", "lowercase": True},
    {"tokenize": "char", "lowercase": False},
]


def flat(documents):
    return [sentence for document in documents for sentence in document]


def joined(documents):
    return [" ".join(document) for document in documents]


@pytest.mark.parametrize("setting", SETTINGS)
def test_scores_are_those_of_sacrebleu_to_the_last_digit(setting):
    result = evaluate_documents(HYPOTHESES, REFERENCES, MetricConfig(**setting))
    s_bleu = sacrebleu.corpus_bleu(flat(HYPOTHESES), [flat(REFERENCES)], **setting)
    d_bleu = sacrebleu.corpus_bleu(joined(HYPOTHESES), [joined(REFERENCES)], **setting)
    chrf = sacrebleu.corpus_chrf(flat(HYPOTHESES), [flat(REFERENCES)])
    assert result.s_bleu.score == s_bleu.score
    assert result.d_bleu.score == d_bleu.score
    assert result.brevity_penalty == d_bleu.bp
    assert result.length_ratio == d_bleu.sys_len / d_bleu.ref_len
    if not setting["lowercase"]:
        assert result.chrf.score == chrf.score
        assert result.d_chrf.score == sacrebleu.corpus_chrf(joined(HYPOTHESES), [joined(REFERENCES)]).score
    assert (result.documents, result.sentences) == (2, 5)
    assert [m.segments for m in (result.s_bleu, result.d_bleu, result.chrf)] == [5, 2, 5]


def test_several_references_are_those_of_sacrebleu():
    second = [["The old bridge was shut.", "Since Monday it is open.", "Why?"], ["She reads.", "He doesn't."]]
    result = evaluate_documents(HYPOTHESES, REFERENCES, more_references=[second])
    sentences = [flat(REFERENCES), flat(second)]
    assert result.s_bleu.score == sacrebleu.corpus_bleu(flat(HYPOTHESES), sentences).score
    assert result.d_bleu.score == sacrebleu.corpus_bleu(joined(HYPOTHESES), [joined(REFERENCES), joined(second)]).score
    assert result.chrf.score == sacrebleu.corpus_chrf(flat(HYPOTHESES), sentences).score
    assert "nrefs:2" in result.s_bleu.signature
    assert result.s_bleu.score > evaluate_documents(HYPOTHESES, REFERENCES).s_bleu.score


def test_a_case_counted_by_hand():
    """Six words of seven: matches 6/6, 5/5, 4/4, 3/3, so BLEU is the brevity penalty exp(1 - 7/6) alone.

    As one document the words a b c d e f stand against a b c d e f g: the same counts. As two sentences
    'a b c' and 'd e f' the n-grams across the border are gone: 6/6, 4/4, 2/2 and no 4-gram, so BLEU is 0.
    """
    config = MetricConfig(tokenize="none")
    whole = evaluate_documents([["a b c d e f"]], [["a b c d e f g"]], config)
    assert whole.s_bleu.score == pytest.approx(100 * math.exp(1 - 7 / 6), abs=1e-9)
    assert whole.brevity_penalty == pytest.approx(math.exp(1 - 7 / 6))
    assert whole.length_ratio == pytest.approx(6 / 7)
    split = evaluate_documents([["a b c", "d e f"]], [["a b c", "d e f g"]], config)
    assert split.s_bleu.score == 0
    assert split.d_bleu.score == whole.s_bleu.score
    assert split.s_bleu.statistics.tolist() == [[3, 3, 3, 2, 1, 0, 3, 2, 1, 0], [3, 4, 3, 2, 1, 0, 3, 2, 1, 0]]


def test_d_bleu_over_instances_sees_the_borders_of_instances():
    by_document = evaluate_documents(HYPOTHESES, REFERENCES)
    by_instance = evaluate_documents(HYPOTHESES, REFERENCES, MetricConfig(unit="instance"), INSTANCES)
    units = [[d[0][0], " ".join(d[0][1:]), " ".join(d[1])] for d in (HYPOTHESES, REFERENCES)]
    assert by_instance.d_bleu.score == sacrebleu.corpus_bleu(units[0], [units[1]]).score
    assert by_instance.d_bleu.score != by_document.d_bleu.score
    assert by_instance.d_bleu.segments == 3
    assert by_instance.s_bleu == by_document.s_bleu
    # One instance a document is the document, one instance a sentence is the sentence.
    whole = evaluate_documents(HYPOTHESES, REFERENCES, MetricConfig(unit="instance"), [[(0, 3)], [(0, 2)]])
    assert whole.d_bleu.score == by_document.d_bleu.score
    single = [[(i, i + 1) for i in range(len(d))] for d in REFERENCES]
    sentences = evaluate_documents(HYPOTHESES, REFERENCES, MetricConfig(unit="instance"), single)
    assert sentences.d_bleu.score == by_document.s_bleu.score


def test_signatures_say_version_case_tokenizer_and_unit():
    result = evaluate_documents(HYPOTHESES, REFERENCES)
    version = f"version:{sacrebleu.__version__}"
    bleu = BLEU()
    bleu.corpus_score(flat(HYPOTHESES), [flat(REFERENCES)])
    assert result.s_bleu.signature == str(bleu.get_signature())
    assert result.d_bleu.signature == f"nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|unit:document|{version}"
    assert result.chrf.signature == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|{version}"
    assert result.d_chrf.signature == f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|unit:document|{version}"
    config = MetricConfig(unit="instance", tokenize="none", lowercase=True)
    other = evaluate_documents(HYPOTHESES, REFERENCES, config, INSTANCES)
    assert "case:lc|eff:no|tok:none|smooth:exp|unit:instance|" in other.d_bleu.signature
    assert "case:lc" in other.chrf.signature
    assert "case:lc" in other.d_chrf.signature and "unit:instance|" in other.d_chrf.signature
    assert [m.name for m in result.metrics.values()] == ["s-BLEU", "d-BLEU", "chrF", "d-chrF"]


def test_lower_case_counts_for_every_metric():
    shouted = [[sentence.upper() for sentence in document] for document in REFERENCES]
    cased = evaluate_documents(shouted, REFERENCES)
    lower = evaluate_documents(shouted, REFERENCES, MetricConfig(lowercase=True))
    for metric in ("s_bleu", "d_bleu", "chrf", "d_chrf"):
        assert getattr(cased, metric).score < 90
        assert getattr(lower, metric).score == pytest.approx(100)


@pytest.mark.parametrize("metric", ["s-bleu", "d-bleu", "chrf", "d-chrf", "chrf++", "d-chrf++", "ter"])
def test_a_resampled_corpus_scores_as_sacrebleu_scores_its_segments(metric):
    [score] = evaluate_documents(HYPOTHESES, REFERENCES, MetricConfig(names=[metric])).metrics.values()
    view = joined if metric.startswith("d-") else flat
    hypotheses, references = view(HYPOTHESES), view(REFERENCES)
    judge = getattr(sacrebleu, f"corpus_{metric.removeprefix('d-').removeprefix('s-').removesuffix('++')}")
    if metric.endswith("++"):
        judge = partial(judge, word_order=2)
        assert "|nw:2|" in score.signature
    assert score.score == judge(hypotheses, [references]).score
    generator = np.random.default_rng(3)
    for _ in range(5):
        sample = generator.integers(len(hypotheses), size=len(hypotheses))
        expected = judge([hypotheses[i] for i in sample], [[references[i] for i in sample]])
        sums = score.statistics[sample].sum(axis=0)
        actual = compute_bleu(sums).score if metric.endswith("bleu") else score.formula(sums)
        assert actual == expected.score


def test_metrics_stand_in_the_order_that_was_named():
    config = MetricConfig(names=["TER,chrf++", "d_bleu"])
    result = evaluate_documents(HYPOTHESES, REFERENCES, config)
    assert list(result.metrics) == ["ter", "chrf_pp", "d_bleu"]
    assert [line.split()[0] for line in result.format().splitlines()[:3]] == ["TER", "chrF++", "d-BLEU"]
    assert result.length_ratio == evaluate_documents(HYPOTHESES, REFERENCES, MetricConfig(names=["ter"])).length_ratio
    assert result.s_bleu is None
    with pytest.raises(DocmtError, match=r"there is no metric 'bleu': choose from s-bleu, .*chrf\+\+, .*ltcr-1"):
        MetricConfig(names=["bleu"])
    assert MetricConfig(names=["s-bleu", "s_bleu"]).keys == ("s_bleu",)


def test_empty_lines_part_paragraphs():
    sides = [[["a b c", "d e", "", "f g h"], ["a", "b"]], [["a b c", "d x", "", "f g h"], ["a", "c"]]]
    result = evaluate_documents(*sides, MetricConfig(unit="paragraph", tokenize="none"))
    assert list(result.metrics) == ["p_bleu", "d_bleu", "p_chrf", "d_chrf"]
    lines = [["a b c d e", "f g h", "a", "b"], ["a b c d x", "f g h", "a", "c"]]
    assert result.p_bleu.segments == 4 and "unit:paragraph" in result.p_bleu.signature
    assert result.p_bleu.score == sacrebleu.corpus_bleu(lines[0], lines[1:], tokenize="none", force=True).score
    assert result.p_chrf.score == sacrebleu.corpus_chrf(lines[0], lines[1:]).score


def test_other_sentence_counts_leave_d_bleu_alone():
    hypotheses = [HYPOTHESES[0][:2], HYPOTHESES[1]]
    result = evaluate_documents(hypotheses, REFERENCES)
    assert (result.s_bleu, result.chrf, result.ter) == (None, None, None)
    assert result.d_chrf.score == sacrebleu.corpus_chrf(joined(hypotheses), [joined(REFERENCES)]).score
    assert result.d_bleu.score == sacrebleu.corpus_bleu(joined(hypotheses), [joined(REFERENCES)]).score
    assert result.undefined == (
        "1 of 2 documents differ from the reference in the number of sentences "
        "(first: document 1 with 2 sentences for 3)"
    )
    assert result.undefined in result.format()
    assert "s-BLEU       -" in result.format() and "s-BLEU and chrF are not defined: 1 of 2" in result.format()
    with_ter = evaluate_documents(
        hypotheses, REFERENCES, MetricConfig(names=["s-bleu", "d-bleu", "chrf", "d-chrf", "ter"])
    ).format()
    assert "s-BLEU, chrF and TER are not defined: 1 of 2" in with_ter and "TER          -" in with_ter
    assert result.to_json()["s_bleu"] is None
    with pytest.raises(DocmtError, match=r"needs paired sentences, but 1 of 2 documents differ"):
        evaluate_documents(hypotheses, REFERENCES, MetricConfig(unit="instance"), INSTANCES)


def test_sentences_that_were_made_to_fit_have_no_scores():
    result = evaluate_documents(HYPOTHESES, REFERENCES, miscounted=3)
    assert (result.s_bleu, result.chrf) == (None, None)
    assert result.d_bleu.score == evaluate_documents(HYPOTHESES, REFERENCES).d_bleu.score
    assert (
        "not defined: in 3 instances the model generated another number of sentences than the source has"
        in result.format()
    )


def test_a_hypothesis_of_nothing_scores_zero():
    result = evaluate_documents([["", ""]], [["one two", "three"]])
    assert (result.s_bleu.score, result.d_bleu.score, result.chrf.score) == (0, 0, 0)
    assert (result.brevity_penalty, result.length_ratio) == (0, 0)


def test_table_and_json_agree():
    result = evaluate_documents(HYPOTHESES, REFERENCES)
    table = result.format().splitlines()
    assert table[0] == f"s-BLEU  {result.s_bleu.score:6.2f}  5 sentences  {result.s_bleu.signature}"
    assert table[1] == f"d-BLEU  {result.d_bleu.score:6.2f}  2 documents  {result.d_bleu.signature}"
    assert table[2].startswith(f"chrF    {result.chrf.score:6.2f}  5 sentences  nrefs:1")
    assert table.pop(3) == f"d-chrF  {result.d_chrf.score:6.2f}  2 documents  {result.d_chrf.signature}"
    assert re.fullmatch(r"2 documents, 5 sentences, brevity penalty 0\.\d{3}, length ratio 0\.\d{3}", table[3])
    data = json.loads(json.dumps(result.to_json()))
    assert data["s_bleu"] == {
        "name": "s-BLEU",
        "score": result.s_bleu.score,
        "signature": result.s_bleu.signature,
        "segments": 5,
    }
    assert data["unit"] == "document"
    assert (data["tokenize"], data["lowercase"], data["undefined"]) == ("13a", False, None)
    assert data["d_bleu"]["segments"] == data["d_chrf"]["segments"] == data["documents"] == 2
    assert (data["ter"], "TER" in result.format()) == (None, False)


@pytest.mark.parametrize(
    ("hypotheses", "references", "message"),
    [
        ([["a"]], [["a"], ["b"]], r"the hypothesis has 1 document but the reference has 2. Both must contain"),
        ([["a"], ["b"]], [["a"]], r"the hypothesis has 2 documents but the reference has 1."),
        ([], [], r"the reference has no documents. Give a corpus with text"),
        ([[]], [[]], r"the reference has no sentences. Give a corpus with text"),
    ],
)
def test_corpora_that_cannot_be_scored(hypotheses, references, message):
    with pytest.raises(DocmtError, match=message):
        evaluate_documents(hypotheses, references)


@pytest.mark.parametrize(
    ("instances", "message"),
    [
        (None, r"needs the instances of every document"),
        ([[(0, 3)]], r"needs the instances of every document"),
        ([[(0, 2)], [(0, 2)]], r"the instances of document 1 do not cover its 3 sentences once"),
        ([[(0, 3)], [(0, 1), (0, 2)]], r"the instances of document 2 do not cover its 2 sentences once"),
        ([[(0, 3)], [(0, 3), (3, 2)]], r"the instances of document 2 do not cover"),
        ([[(0, 3)], [(1, 2)]], r"the instances of document 2 do not cover"),
    ],
)
def test_instances_that_do_not_fit(instances, message):
    with pytest.raises(DocmtError, match=message):
        evaluate_documents(HYPOTHESES, REFERENCES, MetricConfig(unit="instance"), instances)


def test_references_that_do_not_fit_each_other():
    with pytest.raises(DocmtError, match=r"reference 2 and reference 1 differ in documents or sentence counts"):
        evaluate_documents(HYPOTHESES, REFERENCES, more_references=[REFERENCES[:1]])


def test_unknown_options_are_refused_by_name():
    with pytest.raises(DocmtError, match=r"unit is 'page': choose one of document, sentence, paragraph, instance"):
        MetricConfig(unit="page")
    with pytest.raises(DocmtError, match=r"tokenize is '14a': choose one of none, zh, 13a"):
        MetricConfig(tokenize="14a")


def test_a_tokenizer_without_its_packages_says_what_to_install(monkeypatch):
    def missing(**_):
        raise RuntimeError("\nJapanese tokenization requires\nextra dependencies\n")

    monkeypatch.setattr("docmt.evaluation.metrics.BLEU", missing)
    monkeypatch.setattr(missing, "TOKENIZERS", ["ja-mecab"], raising=False)
    message = r"^cannot use the tokenizer ja-mecab: Japanese tokenization requires extra dependencies. "
    with pytest.raises(DocmtError, match=message):
        evaluate_documents(HYPOTHESES, REFERENCES, MetricConfig(tokenize="ja-mecab"))
