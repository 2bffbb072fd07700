"""Outputs with merged, cut, missing and added sentences are aligned as they were made, and nothing is lost."""

import json
import random
from itertools import chain

import pytest
import sacrebleu
from benchmarks.output_alignment import change_sentences, measure_links
from commands import call

from docmt.core.errors import DocmtError
from docmt.evaluation import MetricConfig, align_output, evaluate_documents
from docmt.evaluation.output_alignment import find_paragraphs


def make_corpus(seed, documents=10, sentences=12):
    """Return sources and translations of made-up words that translate each other one by one, in other orders."""
    generator = random.Random(seed)
    words = ["".join(generator.choices("abcdefghij", k=generator.randint(4, 9))) for _ in range(400)]
    others = ["".join(generator.choices("klmnopqrst", k=generator.randint(4, 9))) for _ in range(400)]
    sides = [], []
    for _ in range(documents):
        chosen = [generator.choices(range(400), k=generator.randint(4, 14)) for _ in range(sentences)]
        sides[0].append([f"{' '.join(words[n] for n in each).capitalize()}." for each in chosen])
        for each in chosen:
            generator.shuffle(each)
        sides[1].append([f"{' '.join(others[n] for n in each).capitalize()}." for each in chosen])
    return sides


def characters(documents):
    return ["".join("".join(document).split()) for document in documents]


@pytest.mark.parametrize("seed", range(3))
def test_changed_sentences_are_found(seed):
    sources, references = make_corpus(seed)
    changed, links, counts = change_sentences(references, 0.1, seed)
    output = align_output(sources, changed, references)
    precision, recall = measure_links(output, links)
    assert min(precision, recall) > 0.95
    assert abs(output.shares.omitted - counts[2]) <= 2 and abs(output.shares.added - counts[3]) <= 2
    assert abs(output.shares.merged - 2 * counts[0]) <= 4
    assert characters(output.texts) == characters(changed), "every word is scored"
    assert [sorted(n for unit in each for n in range(*unit)) for each in output.ranges] == [list(range(12))] * 10


def test_same_sentences_are_aligned_one_by_one():
    sources, references = make_corpus(5)
    output = align_output(sources, references, references)
    assert output.pair(references) == [references, references]
    assert (output.shares.omitted, output.shares.added, output.shares.merged) == (0, 0, 0)
    assert output.shares.source == output.shares.translated == 120


def test_whole_paragraphs_on_a_line_are_cut():
    sources, references = make_corpus(6)
    one_line = [[" ".join(document[:5]), " ".join(document[5:])] for document in references]
    assert align_output(sources, one_line, references).pair(references) == [references, references]


def test_a_document_without_text_is_omitted():
    sources, references = make_corpus(7, documents=2)
    output = align_output(sources, [[], references[1]], references)
    assert output.shares.omitted == 12 and output.texts[0] == [""] * 12


def test_nothing_is_lost_beside_empty_lines():
    sources = [["Aa bb.", "", "Cc dd."], [""], [], ["Ee ff."], []]
    references = [["Aa bb.", "first", ""], ["second"], [], ["Ee ff."], []]
    changed = [["Aa bb.", "Cc dd. more"], ["some"], ["other"], ["Ee ff."], []]
    output = align_output(sources, changed, references)
    for each in (output, output.merge(find_paragraphs(references))):
        texts, units = each.pair(references)
        assert characters(texts) == characters(changed) and characters(units) == characters(references)
    assert output.ranges[3:] == [[(0, 1)], []]


def test_merged_sentences_of_one_line_are_counted():
    lines = [["One and two. Three and four.", "Five."]]
    shares = align_output(lines, [["One and two, three and four.", "Five."]], lines).shares
    assert (shares.source, shares.merged) == (3, 2)


def test_a_reference_with_other_lines_is_refused():
    sources, references = make_corpus(7, documents=2)
    with pytest.raises(DocmtError, match="the source has other sentences than the reference"):
        align_output(sources, references, [references[0][1:], references[1]])


def test_paragraphs():
    documents = [["a", "b", "", "c", ""], ["", "", "a"], ["a", "b"], []]
    assert find_paragraphs(documents) == [[(0, 2), (3, 4)], [(2, 3)], [(0, 1), (1, 2)], []]


def test_merged_sentences_are_scored_with_both_references():
    sources, references = make_corpus(8)
    merged = [[f"{document[0].rstrip('.')}, {document[1]}", *document[2:]] for document in references]
    merged[0].pop()
    aligned = align_output(sources, merged, references)
    result = evaluate_documents(merged, references, MetricConfig(unit="sentence"), aligned=aligned)
    assert result.undefined is None and "unit:sentence" in result.s_bleu.signature
    assert result.s_bleu.segments == 120 - 10
    assert result.d_bleu.score == evaluate_documents(merged, references).d_bleu.score
    lines = [[text for document in side for text in document] for side in aligned.pair(references)]
    assert result.s_bleu.score == sacrebleu.corpus_bleu(lines[0], lines[1:]).score
    assert result.alignment.merged == 20 and result.alignment.omitted == 1
    assert sorted(" ".join(lines[1]).split()) == sorted(" ".join(text for each in references for text in each).split())
    assert 95 < result.s_bleu.score < 100, "one of 120 sentences is missing"


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Source, reference, and outputs with other and with the same sentences, with document marks."""
    monkeypatch.chdir(tmp_path)
    sources, references = make_corpus(9, documents=8)
    changed = change_sentences(references, 0.1, 2)[0]
    sides = (("s.en", sources), ("r.de", references), ("o.de", changed), ("same.de", references))
    for name, side in sides:
        (tmp_path / name).write_text(
            "".join(chain.from_iterable(["<d>\n", *(f"{x}\n" for x in each)] for each in side))
        )
    return tmp_path


def test_the_command_says_how_to_align_and_what_it_found(files):
    plain = call("evaluate", "--hypothesis", "o.de", "--reference", "r.de")
    assert "s-BLEU and chrF are not defined: " in plain.out
    assert "To align them, add --unit sentence and --source\n" in plain.out
    aligned = ["--reference", "r.de", "--source", "s.en", "--unit"]
    outcome = call("evaluate", "--hypothesis", "o.de", *aligned, "sentence", "--json", "o.json")
    assert (
        outcome.status == 0 and "aligned with the source by length and lexicon: of 96 source sentences" in outcome.out
    )
    found = json.loads((files / "o.json").read_text())
    assert found["alignment"]["source"] == 96 and found["s_bleu"]["score"] > 60
    assert "unit:sentence" in found["chrf"]["signature"]
    paragraphs = call("evaluate", "--systems", "same.de", "o.de", *aligned, "paragraph", "--samples", "200")
    assert paragraphs.out.split()[:4] == ["p-BLEU", "d-BLEU", "p-chrF", "d-chrF"]
    assert "o.de: aligned with the source" in paragraphs.out and "same.de: aligned" not in paragraphs.out
    both = call("evaluate", "--systems", "same.de", "o.de", *aligned, "sentence", "--samples", "200")
    signatures = next(line for line in both.out.splitlines() if line.startswith("s-BLEU  nrefs")).split("; ")
    assert [signature.count("unit:sentence") for signature in signatures] == [0, 1], "those of all systems"


def test_paragraphs_are_resampled_by_document(files):
    for name in ("r.de", "same.de", "s.en"):
        (files / name).write_text((files / name).read_text().replace("<d>\n", "<d>\n<p>\n").replace("<p>", ""))
    (files / "x.de").write_text((files / "same.de").read_text().replace("k", "l"))
    options = ["--reference", "r.de", "--source", "s.en", "--unit", "paragraph", "--resample", "sentences"]
    outcome = call("evaluate", "--systems", "same.de", "x.de", *options, "--samples", "200")
    assert "confidence interval over 8 documents; " in outcome.out, outcome


def test_options_of_models_have_no_effect_on_files(files):
    outcome = call("evaluate", "--hypothesis", "same.de", "--reference", "r.de", "--protect", "none", "--beam", "3")
    assert "--search.beam" in outcome.err and "--protect" in outcome.err and "only files are scored" in outcome.err


def test_positions_need_metrics_of_sentences(files):
    outcome = call("evaluate", "--hypothesis", "same.de", "--reference", "r.de", "--metrics", "d-chrf", "--by-position")
    assert "same.de has no scores of sentences, so none by position: name some with --metrics" in outcome.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--unit", "sentence"], "--unit sentence needs --source beside --hypothesis"),
        (["--unit", "sentence", "--source", "r2.de"], "r2.de has other sentences than the reference, but --unit"),
        (["--unit", "sentence", "--source", "s.en", "--resample", "sentences"], "so resample documents"),
        (["--unit", "sentence", "--source", "s.en", "--by-position"], "none by position: its sentences were aligned"),
        (["--metrics", "p-chrf", "--model", "nowhere", "--source", "s.en"], "but only files show paragraphs"),
    ],
)
def test_what_does_not_go_together(files, options, message):
    (files / "r2.de").write_text((files / "r.de").read_text().replace("<d>\n", "<d>\nMore.\n"))
    outcome = call("evaluate", "--systems", "o.de", "same.de", "--reference", "r.de", *options)
    assert message in outcome.err
