"""Alignment of hypothesis lines with the sentences and boundaries of the reference."""

import json

import pytest

from docmt.core.errors import DocmtError
from docmt.documents.corpus_files import align_lines
from docmt.evaluation.metrics import MetricConfig, evaluate_documents, evaluate_files

REFERENCE = "The sun is up today.\nIt is warm now.\nWe go out.\n\nA cat sat on the mat.\nIt slept all day.\n"
DOCUMENTS = [("The sun is up today.", "It is warm now.", "We go out."), ("A cat sat on the mat.", "It slept all day.")]
LINES = REFERENCE.splitlines()


@pytest.fixture
def files(tmp_path):
    def write(hypothesis, reference=REFERENCE):
        (tmp_path / "hyp").write_bytes(hypothesis.encode())
        (tmp_path / "ref").write_bytes(reference.encode())
        return tmp_path / "hyp", tmp_path / "ref"

    return write


def same(left, right):
    return left.to_json() == right.to_json()


@pytest.mark.parametrize(
    ("hypothesis", "documents"),
    [
        (["a", "b", "c", "", "d", "e"], [("a", "b", "c"), ("d", "e")]),
        (["a", "", "c", "", "", "e"], [("a", "", "c"), ("", "e")]),
        (["", "", "", "", "", ""], [("", "", ""), ("", "")]),
        (["a", "b", "c", "", "d", "e", "", " "], [("a", "b", "c"), ("d", "e")]),
        (["a\r", "b ", "c", "\r", "d", "e"], [("a", "b", "c"), ("d", "e")]),
        (["a", "b", "c", "d", "", "e"], None),
        (["a", "b", "c", "", "d"], None),
        (["a", "b", "c", "", "d", "e", "f"], None),
        (["a", "<d>", "c", "", "d", "e"], None),
    ],
)
def test_lines_beside_a_reference_with_empty_lines(hypothesis, documents):
    assert align_lines(hypothesis, LINES, DOCUMENTS) == documents


def test_lines_beside_a_reference_with_document_marks():
    lines = ["<d>", *DOCUMENTS[0], "<d>", *DOCUMENTS[1]]
    aligned = align_lines(["<d>", "a", "", "c", "<d>", "d", ""], lines, DOCUMENTS)
    assert aligned == [("a", "", "c"), ("d", "")]
    assert align_lines(["<d>", "a", "<d>", "c", "x", "d", ""], lines, DOCUMENTS) is None


def test_a_reference_ending_in_empty_lines():
    assert align_lines(["a", "b", "c", "", "d", "e"], [*LINES, "", ""], DOCUMENTS) is not None
    assert align_lines(["a", "b", "c", "", "d", ""], [*LINES, ""], DOCUMENTS) == [("a", "b", "c"), ("d", "")]


def test_a_reference_sentence_may_be_empty_too():
    lines, documents = ["<d>", "x", ""], [("x", "")]
    assert align_lines(["<d>", "a", "b"], lines, documents) == [("a", "b")]
    assert align_lines(["<d>", "a", ""], lines, documents) == [("a", "")]


def test_a_byte_order_mark_is_no_text(files):
    unmarked = evaluate_files(*files(REFERENCE))
    marked = evaluate_files(*files("\ufeff" + REFERENCE))
    assert same(unmarked, marked)
    assert unmarked.s_bleu.score == pytest.approx(100)


def test_an_empty_translation_inside_a_document_is_a_sentence(files):
    result = evaluate_files(*files("The sun is up today.\n\nWe go in.\n\nA cat sat on the mat.\nIt slept.\n"))
    expected = evaluate_documents(
        [["The sun is up today.", "", "We go in."], ["A cat sat on the mat.", "It slept."]], DOCUMENTS
    )
    assert same(result, expected)
    assert result.s_bleu.score > 0


def test_another_number_of_lines_is_read_by_its_own_borders(files):
    result = evaluate_files(*files("The sun is up today.\nIt is warm.\n\nA cat sat on the mat.\nIt slept.\n"))
    assert result.s_bleu is None
    assert result.undefined.endswith("(first: document 1 with 2 sentences for 3)")
    assert same(
        result,
        evaluate_documents(
            [["The sun is up today.", "It is warm."], ["A cat sat on the mat.", "It slept."]], DOCUMENTS
        ),
    )


def test_a_missing_last_line_is_not_an_empty_sentence(files):
    result = evaluate_files(*files(REFERENCE.removesuffix("It slept all day.\n")))
    assert result.undefined.endswith("(first: document 2 with 1 sentence for 2)")
    assert evaluate_files(*files(REFERENCE.removesuffix("\n"))).undefined is None
    hypothesis, reference = files("", "One line.\n")
    with pytest.raises(DocmtError, match="hyp has 0 documents"):
        evaluate_files(hypothesis, reference)


def test_as_many_lines_by_chance_do_not_lose_the_one_beside_the_border(files):
    """Two sentences and three for three and two: line 4 is text here and a border there."""
    result = evaluate_files(*files("The sun is up today.\nIt is warm.\n\nA cat.\nIt sat on the mat.\nIt slept.\n"))
    assert result.undefined.startswith("2 of 2 documents")
    units = [["The sun is up today. It is warm."], ["A cat. It sat on the mat. It slept."]]
    assert result.d_bleu.score == evaluate_documents(units, DOCUMENTS).d_bleu.score


def test_different_marks_on_the_two_sides(files):
    marked = "<d>\nThe sun is up today.\nIt is warm now.\nWe go out.\n<d>\nA cat sat on the mat.\nIt slept.\n"
    result = evaluate_files(*files(marked))
    assert (result.documents, result.sentences, result.undefined) == (2, 5, None)
    backwards = evaluate_files(*files(REFERENCE, marked))
    assert (backwards.documents, backwards.sentences, backwards.undefined) == (2, 5, None)


def test_other_numbers_of_documents_name_both_files(files):
    hypothesis, reference = files("The sun is up today.\nIt is warm now.\n")
    with pytest.raises(DocmtError) as caught:
        evaluate_files(hypothesis, reference)
    assert str(caught.value) == (
        f"{hypothesis} has 1 document but {reference} has 2. Both must contain the same documents in the same order"
    )


def test_options_and_instances_are_passed_on(files):
    config = MetricConfig(unit="instance", lowercase=True)
    instances = [[(0, 1), (1, 3)], [(0, 2)]]
    result = evaluate_files(*files(REFERENCE.upper()), config, instances)
    assert result.d_bleu.score == pytest.approx(100)
    assert (result.d_bleu.segments, result.config) == (3, config)


def test_an_empty_reference_is_named(files):
    hypothesis, reference = files("One line.\n", "")
    with pytest.raises(DocmtError, match="ref"):
        evaluate_files(hypothesis, reference)


def test_files_that_cannot_be_read_are_named(files, tmp_path):
    hypothesis, reference = files("x\n")
    with pytest.raises(DocmtError, match="absent"):
        evaluate_files(tmp_path / "absent", reference)
    hypothesis.write_bytes(b"fine\nf\xfcr\n")
    with pytest.raises(DocmtError, match=r"hyp, line 2\b.*not UTF-8"):
        evaluate_files(hypothesis, reference)


def test_jsonl_with_the_documents_in_another_order(files, tmp_path):
    rows = [json.dumps({"id": name, "target": [f"Text {name}."]}) for name in "abc"]
    hypothesis, reference = tmp_path / "hyp.jsonl", tmp_path / "ref.jsonl"
    reference.write_text("\n".join(rows) + "\n")
    for order, is_fine in ((rows, True), ([rows[1], rows[0], rows[2]], False), ([rows[0], rows[2], rows[1]], False)):
        hypothesis.write_text("\n".join(order) + "\n")
        if is_fine:
            evaluate_files(hypothesis, reference)
            continue
        with pytest.raises(DocmtError, match=r"document \d is '.' in .*ref.jsonl but '.' in .*hyp.jsonl"):
            evaluate_files(hypothesis, reference)
    hypothesis.write_text("\n".join(rows).replace('"id": "', '"id": "system/') + "\n")  # names of its own
    evaluate_files(hypothesis, reference)
    hypothesis.write_text('{"id": "none", "target": []}\n' + "\n".join(rows) + "\n")  # without lines, it is left out
    evaluate_files(hypothesis, reference)
    for numbers, is_fine in (("123", True), ("012", True), ("210", False), ("021", False)):
        for path, names in ((reference, "012"), (hypothesis, numbers)):
            path.write_text("".join(json.dumps({"id": name, "target": ["Text."]}) + "\n" for name in names))
        if is_fine:
            evaluate_files(hypothesis, reference)
            continue
        with pytest.raises(DocmtError, match=r"document \d is '.' in .*ref.jsonl but '.' in .*hyp.jsonl"):
            evaluate_files(hypothesis, reference)


def test_jsonl_with_a_sentence_that_was_not_translated(tmp_path, caplog):
    hypothesis, reference = tmp_path / "hyp.jsonl", tmp_path / "ref.jsonl"
    reference.write_text('{"target": ["One.", "Two."]}\n')
    rows = [{"document": "1", "source": "A.", "target": "One."}, {"document": "1", "source": "B.", "error": "too long"}]
    hypothesis.write_text("\n".join(map(json.dumps, rows)))
    scores = evaluate_files(hypothesis, reference)
    assert caplog.messages == [f"{hypothesis}: 1 sentence not translated (error), scored as empty translations"]
    (tmp_path / "hyp.txt").write_text("One.\n\n")
    (tmp_path / "ref.txt").write_text("One.\nTwo.\n")
    assert scores == evaluate_files(tmp_path / "hyp.txt", tmp_path / "ref.txt")
